import numpy as np
import pytest

from scda.adapt.evaluation.reliability import (
    BINS,
    calibration_error,
    even_bins,
    reliability,
    right,
)


def test_a_case_worked_by_hand() -> None:
    confidence = np.array([0.99, 0.98, 0.97, 0.42, 0.41], np.float32)
    correct = np.array([True, True, False, False, True])
    low, high = reliability(confidence, correct)
    assert (low.images, low.accuracy) == (2, 0.5)
    assert low.low <= 0.41 < 0.42 < low.high
    assert (high.images, high.high) == (3, 1.0)
    assert high.confidence == pytest.approx(0.98)
    assert calibration_error([low, high]) == pytest.approx(
        (2 * abs(0.5 - 0.415) + 3 * abs(2 / 3 - 0.98)) / 5
    )


def test_a_confidence_that_is_right_as_often_as_it_says_has_no_error() -> None:
    rng = np.random.default_rng(0)
    confidence = rng.uniform(size=200_000).astype(np.float32)
    bins = reliability(confidence, rng.uniform(size=len(confidence)) < confidence)
    assert len(bins) == BINS
    assert calibration_error(bins) < 0.01
    sure = reliability(np.ones(4, np.float32), np.array([True, True, True, True]))
    assert calibration_error(sure) == 0
    assert calibration_error(reliability(np.empty(0, np.float32), np.empty(0, np.bool_))) == 0


def test_a_discovered_class_is_right_for_the_class_it_is_matched_to() -> None:
    true = np.array([0, 0, 1, 2, 2, 2, 3, 3, 0, 3])
    predicted = np.array([0, 1, 1, 3, 3, 2, 2, 2, 3, 0])
    found = right(true, predicted, 2, 4)  # 3 shows the implicit class 2, and 2 the implicit class 3
    assert found.tolist() == [True, False, True, True, True, False, True, True, False, False]


def test_a_second_part_of_a_class_and_an_unknown_are_wrong() -> None:
    true, predicted = np.array([1, 1, 1, 1, 1]), np.array([1, 1, 2, 3, 3])
    assert right(true, predicted, 1, 3).tolist() == [True, True, False, False, False]
    assert not right(np.array([1]), np.array([2]), 1, 2).any()
    assert right(np.array([0]), np.array([0]), 1, 1).all()


def test_even_bins_hold_equally_many_images_and_never_a_handful() -> None:
    confidence = np.linspace(0, 1, 40, dtype=np.float32)[::-1]
    low, *_, high = bins = even_bins(confidence, confidence > 0.5)
    assert [one.images for one in bins] == [10, 10, 10, 10]
    assert (low.accuracy, high.accuracy, low.low, high.high) == (0, 1, 0, 1)
    assert low.confidence == pytest.approx(np.linspace(0, 1, 40)[:10].mean())
    (few,) = even_bins(np.array([0.2, 0.4], np.float32), np.array([True, False]))
    assert (few.images, few.accuracy) == (2, 0.5)
    assert even_bins(np.empty(0, np.float32), np.empty(0, np.bool_)) == []
    assert len(even_bins(np.ones(1000, np.float32), np.ones(1000, np.bool_))) == 10
