import pytest

from benchmarks.open_set import aggregate
from tests.benchmarks.open_set.test_tables import RECORDS


def test_the_mean_is_over_tasks_of_means_over_seeds() -> None:
    assert aggregate.over_tasks(RECORDS, "os") == 85.5
    # Without D-W's second seed the task still weighs one half.
    assert aggregate.over_tasks(RECORDS[:3], "os") == 85.5


def test_the_deviation_is_that_of_the_seeds_means() -> None:
    assert aggregate.with_deviation(RECORDS, "os") == "85.5 ± 0.7"
    assert aggregate.with_deviation(RECORDS[:2], "os") == "86.0"  # one seed has none


def test_a_seed_without_all_tasks_has_no_part_in_the_deviation() -> None:
    assert aggregate.with_deviation(RECORDS[:3], "os") == "85.5"


def test_spread_is_the_sample_deviation() -> None:
    assert aggregate.spread([92, 90, 91]) == "91.0 ± 1.0"


def test_statuses_are_counted_most_frequent_first() -> None:
    runs = [{"status": status} for status in (["ok"], ["collapsed", "unstable k"], ["collapsed"])]
    assert aggregate.statuses(runs) == "collapsed 2, ok 1, unstable k 1"


@pytest.mark.parametrize(("value", "text"), [(None, ""), (10.06, "10.1")])
def test_what_is_not_published_stays_empty(value: float | None, text: str) -> None:
    assert aggregate.plain(value) == text
