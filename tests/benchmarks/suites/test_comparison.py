from typing import Any

from benchmarks.suites.comparison import comparison


def record(method: str, task: str, kind: str, figure: float, k_abs: int = 1) -> dict[str, Any]:
    other = {"hos": 0.0, "os_star": 0.0, ("os_star" if kind == "none" else "hos"): figure}
    fixed = {"method": method, "task": task, "family": task.split("-")[0], "kind": kind, "seed": 0}
    return {**fixed, **other, "k_abs": k_abs}


RECORDS = [
    record("scda", "a-1", "half", 80.0),
    record("sta", "a-1", "half", 60.0, 9),
    record("scda", "a-2", "half", 90.0),
    record("sta", "a-2", "half", 94.0, 5),
    record("scda", "b-1", "none", 50.0),
    record("sta", "b-1", "none", 70.0),
    record("scda", "b-2", "missing", 10.0),
    record("sta", "b-2", "missing", 0.0),
]


def test_a_method_has_a_column_and_a_group_a_row() -> None:
    text = comparison(RECORDS)
    assert "| group | tasks | scda | sta |" in text
    assert "| a half | 2 | 85.0 | 77.0 |" in text
    assert "| b none | 1 | 50.0 | 70.0 |" in text
    assert "| missing | 1 | 10.0 | 0.0 |" in text
    # `missing` is in no mean.
    assert "| **mean of 2 groups** |  | 67.5 | 73.5 |" in text
    assert "| a half | 2 | 1.0 | 7.0 |" in text


def test_leads_over_scda_are_named_from_the_largest_on() -> None:
    assert "| sta | 2 of 4 | b-1 +20.0, a-2 +4.0 |" in comparison(RECORDS)


def test_a_task_that_a_method_lacks_counts_for_none() -> None:
    text = comparison([*RECORDS, record("scda", "a-3", "half", 0.0)])
    assert "on 4 tasks" in text
    assert "| a half | 2 | 85.0 |" in text


def test_without_a_task_of_every_method_there_is_no_table() -> None:
    assert comparison([RECORDS[0], RECORDS[3]]) == "No task has a record of every method."


def test_without_scda_nobody_is_ahead_of_it() -> None:
    assert "ahead" not in comparison([one for one in RECORDS if one["method"] != "scda"])
