"""The comparison of methods on a suite: a column per method, and the tasks that scda loses."""

from collections.abc import Sequence
from statistics import mean

from benchmarks.open_set.aggregate import average, grouped, markdown, over_tasks, plain
from benchmarks.open_set.results import Record
from benchmarks.suites.summary import MISSING, figure, group_of

OWN = "scda"
_NAMED = 4  # tasks that a row of `ahead` names


def comparison(records: Sequence[Record]) -> str:
    """Return figures and errors of k* by group, a column per method, and who is ahead of scda.

    Tasks that a method lacks are left out, so that all columns are about the same tasks.
    """
    figured = [
        {**record, "figure": figure(record), "group": group_of(record)} for record in records
    ]
    methods = grouped(figured, "method")
    tasks = {
        task: members
        for task, members in grouped(figured, "task").items()
        if len(grouped(members, "method")) == len(methods)
    }
    shared = [record for members in tasks.values() for record in members]
    if not shared:
        return "No task has a record of every method."
    parts = [
        f"HOS (none: OS\\*) on {len(tasks)} tasks:",
        by_group(shared, "figure"),
        "\\|k\\*-k\\|:",
        by_group(shared, "k_abs"),
    ]
    if OWN in methods and len(methods) > 1:
        parts += [f"Tasks on which a method is ahead of {OWN}:", ahead(shared)]
    return "\n\n".join(parts)


def by_group(records: Sequence[Record], field: str) -> str:
    """Return a row per group and a column per method, and the mean over groups.

    As in the summary, the mean leaves out the group of tasks with missing known classes.
    """
    methods = list(grouped(records, "method"))
    rows, counted = [], []
    for group, members in grouped(records, "group").items():
        of_method = grouped(members, "method")
        means = [over_tasks(of_method[method], field) for method in methods]
        rows.append([group, str(len(grouped(members, "task"))), *map(plain, means)])
        if group != MISSING:
            counted.append(means)
    if counted:
        means = [mean(column) for column in zip(*counted, strict=True)]
        rows.append([f"**mean of {len(counted)} groups**", "", *map(plain, means)])
    return markdown(["group", "tasks", *methods], rows)


def ahead(records: Sequence[Record]) -> str:
    """Return a row per other method: on how many tasks it is ahead of scda, and on which most."""
    tasks = grouped(records, "task").values()
    rows = []
    for method in grouped(records, "method"):
        if method == OWN:
            continue
        leads = sorted((_lead(members, method) for members in tasks), reverse=True)
        won = [(points, task) for points, task in leads if points > 0]
        named = ", ".join(f"{task} {points:+.1f}" for points, task in won[:_NAMED])
        rows.append([method, f"{len(won)} of {len(leads)}", named])
    return markdown(["method", "tasks", "largest leads, points"], rows)


def _lead(members: Sequence[Record], method: str) -> tuple[float, str]:
    """Return the lead of a method over scda on one task, in points, and the task."""
    of_method = grouped(members, "method")
    lead = average(of_method[method], "figure") - average(of_method[OWN], "figure")
    return round(lead, 2), str(members[0]["task"])
