import numpy as np
import pytest

from scda.models.drift.homogeneity import (
    Statistic,
    far_rise,
    holm,
    largest_change,
    p_value,
    rise,
)


@pytest.mark.parametrize(
    "statistics",
    [(largest_change,), (rise,), (far_rise,), (rise, far_rise)],
    ids=lambda given: "-".join(statistic.__name__ for statistic in given),
)
def test_two_samples_of_one_population_differ_as_often_as_the_p_value_says(
    statistics: tuple[Statistic, ...],
) -> None:
    rng = np.random.default_rng(0)
    shares = np.array([0.5, 0.3, 0.15, 0.04, 0.01])
    found = [
        p_value(rng.multinomial(300, shares), rng.multinomial(80, shares), *statistics, seed=number)
        for number in range(60)
    ]
    assert np.mean(np.array(found) <= 0.1) == pytest.approx(0.1, abs=0.09)
    assert np.mean(np.array(found) <= 0.5) == pytest.approx(0.5, abs=0.2)


def test_a_class_that_vanishes_among_many_is_noticed() -> None:
    before, now = np.full(40, 50), np.full(40, 10)
    now[7] = 0
    assert p_value(before, now, largest_change) < 0.05
    assert p_value(before, np.full(40, 10), largest_change) > 0.9


def test_only_a_rise_is_a_rise() -> None:
    even, high = np.array([50, 50, 50, 50]), np.array([10, 20, 40, 60])
    assert p_value(even, high, rise) <= 0.001
    assert p_value(even, high[::-1], rise) > 0.9


def test_a_few_images_that_lie_far_are_noticed_among_many() -> None:
    before = np.array([*[10] * 19, 5, 5])
    now = np.array([*[9] * 19, 5, 24])
    assert p_value(before, now, rise) > 0.01
    assert p_value(before, now, far_rise) <= 0.002
    assert p_value(before, now, rise, far_rise) <= 0.004
    assert p_value(before, now[::-1], far_rise) > 0.1


def test_several_statistics_count_by_the_rarer_one() -> None:
    before, now = np.array([30, 30, 20, 20]), np.array([10, 30, 35, 25])
    alone = [p_value(before, now, one) for one in (rise, far_rise)]
    assert min(alone) <= p_value(before, now, rise, far_rise) <= 2 * min(alone)


def test_a_far_end_is_none_without_cells_that_few_images_reach() -> None:
    assert p_value(np.array([10, 90]), np.array([0, 100]), far_rise) == 1


@pytest.mark.parametrize(("before", "now"), [([5, 5], [0, 0]), ([0, 0], [5, 5]), ([9, 0], [4, 0])])
def test_nothing_to_compare_is_no_change(before: list[int], now: list[int]) -> None:
    assert p_value(np.array(before), np.array(now), largest_change) == 1


def test_holm_adjusts_from_the_smallest_on() -> None:
    found = holm({"a": 0.04, "b": 0.01, "c": 0.03, "d": 0.9})
    assert found == pytest.approx({"a": 0.09, "b": 0.04, "c": 0.09, "d": 0.9})
    assert list(found) == ["a", "b", "c", "d"]
    assert holm({}) == {}
