"""Fit the constants of trust on records of a suite, and judge them on the family left out."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls
from scipy.stats import spearmanr

from benchmarks.open_set.aggregate import grouped, markdown
from benchmarks.open_set.results import Record
from benchmarks.suites.summary import BAD, GOOD, figure, group_of, warns
from scda.adapt.discovery.findings import Status
from scda.adapt.discovery.trust.calibration import (
    ERROR,
    KNOWN_ERROR,
    WEAK,
    Line,
    contradiction,
    sign,
)
from scda.models.errors import UsageError

_COVERED = 0.9  # share of the runs that lie within the interval
_WARNED = 0.1  # share of the good runs that may carry a warning
_OWN = {Status.DOUBTFUL.value, Status.WEAK_TRANSFER.value}  # statuses that trust gives
_Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class Constants:
    """The constants of `scda.adapt.discovery.trust.calibration`."""

    known_error: Line
    width: float
    error: Line
    doubtful: float

    def __str__(self) -> str:
        """Return them as they stand there."""
        return (
            f"KNOWN_ERROR = {_written(self.known_error)}\nWIDTH = {self.width:.2f}\n"
            f"ERROR = {_written(self.error)}\nDOUBTFUL = {self.doubtful:.3f}"
        )


@dataclass(frozen=True)
class Judged:
    """A record, and what constants that were fitted without its family say."""

    record: Record
    known_error: float
    error: float
    constants: Constants

    @property
    def known_miss(self) -> float:
        """How far the expected accuracy is from the true one, 0 to 1."""
        return abs(1 - self.known_error - float(self.record["known_accuracy"]) / 100)

    def is_doubted(self, doubtful: float) -> bool:
        """Return whether the run carries a warning if trust doubts it from this error on."""
        others = {**self.record, "status": [s for s in self.record["status"] if s not in _OWN]}
        return self.error >= doubtful or self.known_error >= WEAK or warns(others)


def fit(records: Sequence[Record], names: Sequence[str] = ()) -> Constants:
    """Return the constants that fit records best; every group counts as much.

    Args:
        records: Records of a suite, with measures and truth.
        names: Measures of both lines; empty takes those in use.
    """
    known = fit_line(
        records,
        names or [*KNOWN_ERROR.weights],
        [1 - record["known_accuracy"] / 100 for record in records],
    )
    error = fit_line(
        records, names or [*ERROR.weights], [1 - figure(record) / 100 for record in records]
    )
    expected = np.array([known.error(record["measures"]) for record in records])
    missed = np.abs(1 - expected - [record["known_accuracy"] / 100 for record in records])
    width = float(np.quantile(missed / np.sqrt(np.maximum(expected, 1e-6)), _COVERED))
    good = [error.error(record["measures"]) for record in records if figure(record) >= GOOD]
    doubtful = float(np.quantile(good, 1 - _WARNED)) if good else math.inf
    return Constants(known, width, error, doubtful)


def fit_line(records: Sequence[Record], names: Sequence[str], errors: Sequence[float]) -> Line:
    """Return the line with the least squared distance to the errors; no weight is negative."""
    signs = np.array([[sign(n, record["measures"][n]) for n in names] for record in records])
    groups = grouped([{"group": group_of(record)} for record in records], "group")
    share = np.array([1 / math.sqrt(len(groups[group_of(record)])) for record in records])
    matrix = np.column_stack([signs, np.ones(len(records))]) * share[:, None]
    weights, _ = nnls(matrix, np.asarray(errors) * share)
    return Line(float(weights[-1]), dict(zip(names, map(float, weights), strict=False)))


def judge(records: Sequence[Record], names: Sequence[str] = ()) -> list[Judged]:
    """Return every record with what the constants fitted on all other families say.

    Raises:
        UsageError: If the records hold fewer than two families, or no measures.
    """
    if lacking := [record["task"] for record in records if "measures" not in record]:
        raise UsageError(f"{lacking[0]}: the record holds no measures; measure it anew")
    families = sorted({record["family"] for record in records})
    if len(families) < 2:
        raise UsageError(f"expected records of two or more families, found {len(families)}")
    judged = []
    for family in families:
        constants = fit([record for record in records if record["family"] != family], names)
        for record in records:
            if record["family"] == family:
                least, measures = contradiction(record["measures"]), record["measures"]
                known = max(least, constants.known_error.error(measures))
                error = max(least, constants.error.error(measures))
                judged.append(Judged(record, known, error, constants))
    return judged


def report(records: Sequence[Record], names: Sequence[str] = ()) -> str:
    """Return tables by family left out and by threshold, and the constants of all records."""
    judged = judge(records, names)
    families = {
        family: [j for j in judged if j.record["family"] == family]
        for family in dict.fromkeys(j.record["family"] for j in judged)
    }
    header = [
        "family left out",
        "runs",
        "error of expected accuracy",
        "rank",
        "bad with ok",
        "good with a warning",
    ]
    rows = [[name, *_row(members)] for name, members in (*families.items(), ("all", judged))]
    return "\n\n".join([markdown(header, rows), _trade_off(judged), str(fit(records, names))])


def _row(judged: Sequence[Judged]) -> list[str]:
    misses = 100 * np.mean([j.known_miss for j in judged])
    truth = [j.record["known_accuracy"] for j in judged]
    rank = spearmanr([-j.known_error for j in judged], truth).statistic if len(judged) > 2 else 0
    bad = [j for j in judged if figure(j.record) < BAD]
    good = [j for j in judged if figure(j.record) >= GOOD]
    silent = sum(not j.is_doubted(j.constants.doubtful) for j in bad)
    warned = sum(j.is_doubted(j.constants.doubtful) for j in good)
    return [
        str(len(judged)),
        f"{misses:.1f}",
        f"{rank:.2f}",
        f"{silent} of {len(bad)}",
        f"{warned} of {len(good)}",
    ]


def _trade_off(judged: Sequence[Judged]) -> str:
    """Return how many bad runs say `ok` and how many good ones are warned, by threshold."""
    bad = [j for j in judged if figure(j.record) < BAD]
    good = [j for j in judged if figure(j.record) >= GOOD]
    rows = [
        [
            f"{doubtful:.2f}",
            str(sum(not j.is_doubted(doubtful) for j in bad)),
            str(sum(j.is_doubted(doubtful) for j in good)),
        ]
        for doubtful in np.arange(0.08, 0.321, 0.02)
    ]
    header = ["doubtful from", f"bad with ok, of {len(bad)}", f"good warned, of {len(good)}"]
    return markdown(header, rows)


def _written(line: Line) -> str:
    weights = ", ".join(f'"{name}": {weight:.2f}' for name, weight in line.weights.items())
    return f"Line({line.base:.3f}, {{{weights}}})"
