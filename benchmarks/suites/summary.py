"""The summary of a suite: figures by group, statuses, and the estimate against the truth."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import mean

from scipy.stats import spearmanr
from sklearn.metrics import roc_auc_score

from benchmarks.open_set.aggregate import Group, average, grouped, markdown, over_tasks, plain
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
            plain(_mean_estimate(members)),
        ]
        for group, members in groups.items()
    ]
    header = ["group", "tasks", "HOS (none: OS*)", "\\|k*-k\\|", "runs with k* = 0", "knn_agree"]
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
    rank, area = rank_correlation(records), auroc_of_bad(records)
    yield (
        f"knn_agree: rank correlation with the figure {_two(rank)}; "
        f"AUROC of a figure below {BAD:.0f}: {_two(area)}"
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
        return cls(silent, len(bad), sum(map(_warns, good)), len(good))


def _warns(record: Record) -> bool:
    """Return whether a run has a warning; `nothing new found` is none if it is true."""
    harmless = {"ok", "nothing new found"} if record["kind"] == "none" else {"ok"}
    return not set(record["status"]) <= harmless


def rank_correlation(records: Sequence[Record]) -> float:
    """Return Spearman's correlation of estimate and figure; nan if it is not defined."""
    pairs = [(record["knn_agree"], figure(record)) for record in _estimated(records)]
    estimates, figures = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    if len(set(estimates)) < 2 or len(set(figures)) < 2:
        return math.nan
    return float(spearmanr(estimates, figures).statistic)


def auroc_of_bad(records: Sequence[Record]) -> float:
    """Return how often a bad run has a lower estimate than another, 0 to 1; nan if undefined."""
    estimated = _estimated(records)
    bad = [figure(record) < BAD for record in estimated]
    if all(bad) or not any(bad):
        return math.nan
    return float(roc_auc_score(bad, [-record["knn_agree"] for record in estimated]))


def _estimated(records: Sequence[Record]) -> list[Record]:
    return [record for record in records if record["knn_agree"] is not None]


def _mean_estimate(records: Sequence[Record]) -> float | None:
    estimated = _estimated(records)
    return average(estimated, "knn_agree") if estimated else None


def _two(value: float) -> str:
    return "not defined" if math.isnan(value) else f"{value:.2f}"
