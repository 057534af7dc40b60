"""The summary of a suite: figures by group, statuses, and the estimate against the truth."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import mean

from scipy.stats import spearmanr

from benchmarks.open_set.aggregate import Group, grouped, markdown, over_tasks, plain
from benchmarks.open_set.results import Record

MISSING = "missing"  # the group of all tasks with missing known classes
BAD, GOOD = 75.0, 85.0  # percent: a run is bad below the first figure, good from the second on


def figure(record: Record) -> float:
    """Return the figure of a run in percent: OS* if nothing is new, otherwise HOS."""
    return float(record["os_star" if record["kind"] == "none" else "hos"])


def group_of(record: Record) -> str:
    """Return family and kind; tasks with missing known classes form one group."""
    missing = record["kind"] == "missing"
    return MISSING if missing else f"{record['family']} {record['kind']}"


def summary(records: Sequence[Record]) -> str:
    """Return the table by group and the lines below it."""
    figured = [
        {**record, "figure": figure(record), "group": group_of(record)} for record in records
    ]
    groups = grouped(figured, "group")
    return "\n\n".join([_group_table(groups), *_lines(groups, figured)])


def _group_table(groups: Group) -> str:
    rows = [
        [
            group,
            str(len(grouped(members, "task"))),
            plain(over_tasks(members, "figure")),
            plain(over_tasks(members, "k_abs")),
            f"{sum(record['k_star'] == 0 for record in members)} of {len(members)}",
            plain(over_tasks(members, "expected_accuracy")),
            plain(over_tasks(members, "known_accuracy")),
        ]
        for group, members in groups.items()
    ]
    header = [
        "group",
        "tasks",
        "HOS (none: OS*)",
        "\\|k*-k\\|",
        "runs with k* = 0",
        "expected accuracy",
        "true",
    ]
    return markdown(header, rows)


def _lines(groups: Group, records: Sequence[Record]) -> Iterable[str]:
    of_kind = {group: members for group, members in groups.items() if group != MISSING}
    if of_kind:
        means = {group: over_tasks(members, "figure") for group, members in of_kind.items()}
        worst = min(means, key=lambda group: means[group])
        error = mean(over_tasks(members, "k_abs") for members in of_kind.values())
        yield (
            f"mean over {len(means)} groups, `missing` left out: {mean(means.values()):.1f}; "
            f"mean \\|k*-k\\| {error:.1f}; worst group: {worst} with {means[worst]:.1f}"
        )
    status = StatusCounts.of(records)
    yield (
        f"runs below {BAD:.0f} with status ok: {status.silent} of {status.bad}; "
        f"runs at {GOOD:.0f} or more with a warning: {status.warned} of {status.good}"
    )
    yield (
        f"expected accuracy of known images: mean error {mean_error(records):.1f} points; "
        f"rank correlation {_two(rank_correlation(records))}; inside the interval: "
        f"{sum(r['low'] <= r['known_accuracy'] <= r['high'] for r in records)} of {len(records)}"
    )


@dataclass(frozen=True)
class StatusCounts:
    """Numbers of runs whose status is misleading."""

    silent: int  # bad runs with the status `ok`
    bad: int
    warned: int  # good runs with a warning
    good: int

    @classmethod
    def of(cls, records: Sequence[Record]) -> "StatusCounts":
        """Count the runs of these records."""
        bad = [record for record in records if figure(record) < BAD]
        good = [record for record in records if figure(record) >= GOOD]
        silent = sum(record["status"] == ["ok"] for record in bad)
        return cls(silent, len(bad), sum(map(warns, good)), len(good))


def warns(record: Record) -> bool:
    """Return whether a run has a warning; `nothing new found` is none if it is true."""
    harmless = {"ok", "nothing new found"} if record["kind"] == "none" else {"ok"}
    return not set(record["status"]) <= harmless


def mean_error(records: Sequence[Record]) -> float:
    """Return how far the expected accuracy is from the true one on average, in points."""
    return mean(abs(float(r["expected_accuracy"] - r["known_accuracy"])) for r in records)


def rank_correlation(records: Sequence[Record]) -> float:
    """Return Spearman's correlation of expected and true accuracy; nan if it is not defined."""
    expected = [record["expected_accuracy"] for record in records]
    true = [record["known_accuracy"] for record in records]
    if len(set(expected)) < 2 or len(set(true)) < 2:
        return math.nan
    return float(spearmanr(expected, true).statistic)


def _two(value: float) -> str:
    return "not defined" if math.isnan(value) else f"{value:.2f}"
