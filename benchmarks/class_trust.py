"""Measure whether doubt about a discovered class is right, and choose its two limits.

    python -m benchmarks.class_trust FILE.jsonl

Reads the results of `benchmarks.suite` and prints a table by family. A class is bad if most of its
images are of a known class, or if no true class has half of them. The limits of stability and leak
are those with the best balanced accuracy; each family is judged by the limits that the other
families chose.
"""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from statistics import mean

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score

from benchmarks.open_set import results
from benchmarks.open_set.aggregate import markdown
from benchmarks.suites.classes import Judged
from scda.models.errors import ScdaError, UsageError

_STABILITIES = np.arange(40, 100, 5) / 100
_LEAKS = np.arange(2, 50, 2) / 100
_HEADER = [
    "family",
    "classes",
    "bad",
    "AUROC of stability / leak",
    "doubtful",
    "precision",
    "recall",
    "limits",
]


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table and the limits, and return the exit code."""
    options = _parser().parse_args(arguments)
    try:
        families = read_families(options.records)
    except ScdaError as error:
        print(f"class_trust: {error}", file=sys.stderr)
        return error.exit_code
    print(report(families))
    return 0


@dataclass(frozen=True)
class Limits:
    """A class is doubtful below the limit of stability or above that of leak."""

    stability: float
    leak: float

    def doubtful(self, classes: Sequence[Judged]) -> NDArray[np.bool_]:
        """Return whether each class is doubtful."""
        return np.array(
            [one.stability < self.stability or one.leak > self.leak for one in classes], bool
        )


def read_families(path: Path) -> dict[str, list[Judged]]:
    """Return the discovered classes of all runs by family.

    Raises:
        UsageError: If the file has no run that discovered a class.
    """
    families: dict[str, list[Judged]] = {}
    for record in results.read(path):
        for fields in record.get("classes", ()):
            families.setdefault(record["family"], []).append(Judged(**fields))
    if len(families) < 2:
        raise UsageError(
            f"{path}: found discovered classes of {len(families)} families; "
            "expected results of benchmarks.suite with two or more"
        )
    return families


def report(families: dict[str, list[Judged]]) -> str:
    """Return the table by family, and the limits that all families choose."""
    chosen = best_limits(families)
    everything = [one for classes in families.values() for one in classes]
    others = {
        name: best_limits({k: v for k, v in families.items() if k != name}) for name in families
    }
    doubtful = np.concatenate(
        [others[name].doubtful(classes) for name, classes in families.items()]
    )
    rows = [
        _row(name, classes, others[name].doubtful(classes), _shown(others[name]))
        for name, classes in families.items()
    ]
    rows.append(_row("all", everything, doubtful, "of the others"))
    return f"{markdown(_HEADER, rows)}\n\nLimits that all families choose: {_shown(chosen)}"


def best_limits(families: dict[str, list[Judged]]) -> Limits:
    """Return the limits with the best balanced accuracy.

    It is the mean of two shares, each a mean over families: of bad classes that are doubtful, and
    of good ones that are not.
    """
    candidates = [Limits(*pair) for pair in product(_STABILITIES.tolist(), _LEAKS.tolist())]
    return max(candidates, key=lambda limits: _balanced_accuracy(limits, families))


def _balanced_accuracy(limits: Limits, families: dict[str, list[Judged]]) -> float:
    told: dict[bool, list[float]] = {True: [], False: []}
    for classes in families.values():
        right = limits.doubtful(classes) == _bad(classes)
        for kind, shares in told.items():
            if (of_kind := _bad(classes) == kind).any():
                shares.append(float(right[of_kind].mean()))
    return mean(mean(shares) for shares in told.values() if shares)


def _bad(classes: Sequence[Judged]) -> NDArray[np.bool_]:
    return np.array([one.bad for one in classes])


def _row(
    name: str, classes: Sequence[Judged], doubtful: NDArray[np.bool_], limits: str
) -> list[str]:
    bad = _bad(classes)
    both = int((doubtful & bad).sum())
    areas = [
        _auroc(bad, [-one.stability for one in classes]),
        _auroc(bad, [one.leak for one in classes]),
    ]
    return [
        name,
        str(len(classes)),
        str(bad.sum()),
        " / ".join(areas),
        str(doubtful.sum()),
        f"{both / doubtful.sum():.2f}" if doubtful.any() else "",
        f"{both / bad.sum():.2f}" if bad.any() else "",
        limits,
    ]


def _auroc(bad: NDArray[np.bool_], values: Sequence[float]) -> str:
    """Return how often a bad class has the larger value than a good one."""
    if bad.all() or not bad.any():
        return "not defined"
    return f"{roc_auc_score(bad, values):.2f}"


def _shown(limits: Limits) -> str:
    return f"stability {limits.stability:.2f}, leak {limits.leak:.2f}"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("records", type=Path, help="results that benchmarks.suite wrote")
    return parser


if __name__ == "__main__":
    sys.exit(main())
