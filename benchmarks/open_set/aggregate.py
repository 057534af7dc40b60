"""Means over records (over the seeds of a task, then over tasks), and Markdown tables."""

from collections import Counter
from collections.abc import Sequence
from statistics import mean, stdev

from benchmarks.open_set.results import Record

Group = dict[str, list[Record]]


def grouped(records: Sequence[Record], field: str) -> Group:
    """Return the records grouped by a field, in order of first appearance."""
    groups: Group = {}
    for record in records:
        groups.setdefault(record[field], []).append(record)
    return groups


def average(records: Sequence[Record], field: str) -> float:
    """Return the mean of a field."""
    return float(mean(record[field] for record in records))


def over_tasks(records: Sequence[Record], field: str) -> float:
    """Return the mean over tasks of each task's mean over seeds."""
    return mean(average(members, field) for members in grouped(records, "task").values())


def with_deviation(records: Sequence[Record], field: str) -> str:
    """Return the mean over tasks ± the standard deviation, over seeds, of this mean."""
    tasks = len(grouped(records, "task"))
    seeds = grouped(records, "seed").values()
    per_seed = [average(members, field) for members in seeds if len(members) == tasks]
    return _cell(over_tasks(records, field), per_seed)


def signed_error(records: Sequence[Record]) -> float:
    """Return |mean k* - k|, in which errors of opposite sign cancel."""
    return abs(over_tasks(records, "k_signed"))


def spread(values: Sequence[float]) -> str:
    """Return the mean ± the standard deviation; a single value has none."""
    return _cell(mean(values), values)


def statuses(records: Sequence[Record]) -> str:
    """Return every status with the number of runs that ended with it, most frequent first."""
    counts = Counter(head for record in records for head in dict.fromkeys(record["status"]))
    return ", ".join(f"{head} {count}" for head, count in counts.most_common())


def plain(value: float | None) -> str:
    """Return a number with one decimal, or an empty text for None."""
    return "" if value is None else f"{value:.1f}"


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cell(value: float, values: Sequence[float]) -> str:
    return f"{value:.1f} ± {stdev(values):.1f}" if len(values) > 1 else f"{value:.1f}"
