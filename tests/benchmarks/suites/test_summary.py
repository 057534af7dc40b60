import math
from typing import Any

import pytest

from benchmarks.suites import summary
from benchmarks.suites.summary import StatusCounts


def record(task: str, kind: str, figure: float, **fields: Any) -> dict[str, Any]:
    other = {"hos": 0.0, "os_star": 0.0, ("os_star" if kind == "none" else "hos"): figure}
    fixed = {"task": task, "family": task.split("-")[0], "kind": kind, "seed": 0, **other}
    trust = {"expected_accuracy": figure - 2, "low": figure - 5, "high": figure + 5}
    fixed |= {"k_star": 2, "k_abs": 1, "status": ["ok"], "known_accuracy": figure, **trust}
    return {**fixed, **fields}


RECORDS = [
    record("a-1", "half", 90.0),
    record("a-2", "half", 70.0),
    record("b-1", "half", 40.0, status=["weak transfer"], k_abs=4),
    record("a-3", "none", 95.0, status=["nothing new found"], k_star=0, k_abs=0),
    record("a-4", "few", 88.0, status=["k unsure"]),
    record("b-2", "missing", 60.0),
]


def test_groups_count_the_same_whatever_their_size() -> None:
    text = summary.summary(RECORDS)
    assert "| a half | 2 | 80.0 | 1.0 | 0 of 2 | 78.0 | 80.0 |" in text
    assert "| a none | 1 | 95.0 | 0.0 | 1 of 1 | 93.0 | 95.0 |" in text
    assert "| missing | 1 | 60.0 |" in text
    # (80 + 40 + 95 + 88) / 4, without `missing`
    assert "mean over 4 groups, `missing` left out: 75.8; mean \\|k*-k\\| 1.5" in text
    assert "worst group: b half with 40.0" in text


def test_seeds_of_a_task_count_once() -> None:
    more = [*RECORDS, record("a-1", "half", 70.0, seed=1)]
    assert "| a half | 2 | 75.0 |" in summary.summary(more)


def test_statuses_are_held_against_the_truth() -> None:
    # a-2 and b-2 are bad and say ok, b-1 is bad and warns; a-4 is good and warns.
    assert StatusCounts.of(RECORDS) == StatusCounts(silent=2, bad=3, warned=1, good=3)


def test_that_nothing_is_new_is_a_warning_where_something_is() -> None:
    assert StatusCounts.of([record("a-1", "few", 90.0, status=["nothing new found"])]).warned == 1


def test_the_expected_accuracy_is_held_against_the_true_one() -> None:
    assert summary.rank_correlation(RECORDS) == pytest.approx(1)
    assert summary.mean_error(RECORDS) == pytest.approx(2)
    outside = [*RECORDS, record("b-3", "half", 80.0, low=85.0)]
    assert "mean error 2.0 points" in summary.summary(outside)
    assert "inside the interval: 6 of 7" in summary.summary(outside)
    turned = [{**one, "expected_accuracy": -one["known_accuracy"]} for one in RECORDS]
    assert summary.rank_correlation(turned) == pytest.approx(-1)


def test_what_cannot_be_computed_is_said_to_be_undefined() -> None:
    assert math.isnan(summary.rank_correlation(RECORDS[:1]))
    assert "not defined" in summary.summary([record("a-1", "missing", 0.0)])
