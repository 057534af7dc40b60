import numpy as np
import pytest

from scda.adapt.discovery.neighbours import nearest_others
from scda.adapt.discovery.trust.classes import measures, trust_classes
from scda.models.index import normalised
from scda.models.trust import Doubt

KNOWN = 2


def cloud(number: int, count: int) -> np.ndarray:
    """Images of one class: points near an axis of their own."""
    noise = np.random.default_rng(number).normal(size=(count, 8), scale=0.1)
    return normalised(np.asarray(np.eye(8)[number] + noise, np.float32))


def neighbours(*counts: int) -> np.ndarray:
    points = np.vstack([cloud(number, count) for number, count in enumerate(counts)])
    return nearest_others(points, 10)


def trusted(predicted: np.ndarray, near: np.ndarray) -> list[tuple[Doubt, ...]]:
    centroids = np.eye(int(predicted.max()) + 1, dtype=np.float32)
    return [one.doubts for one in trust_classes(predicted, near, centroids, KNOWN)]


def test_classes_of_their_own_are_stable_and_do_not_leak() -> None:
    near = neighbours(20, 20, 20, 20)
    predicted = np.repeat([0, 1, 2, 3], 20)
    assert [measures(predicted, near, label, KNOWN) for label in (2, 3)] == [(1.0, 0.0)] * 2
    assert trusted(predicted, near) == [(), ()]


def test_a_part_of_a_known_class_leaks() -> None:
    near = neighbours(40, 20, 20)
    predicted = np.repeat([0, 3, 1, 2], [25, 15, 20, 20])  # 15 of the 40 images of class 0
    stability, leak = measures(predicted, near, 3, KNOWN)
    assert leak == pytest.approx((predicted[near[25:40]] < KNOWN).mean())
    assert stability < 0.5 < leak
    assert trusted(predicted, near) == [(), (Doubt.UNSTABLE, Doubt.LEAKS)]


def test_a_class_that_is_divided_at_random_is_unstable_and_does_not_leak() -> None:
    near = neighbours(20, 20, 60)
    thirds = np.random.default_rng(0).permutation(np.repeat([2, 3, 4], 20))
    predicted = np.concatenate([np.repeat([0, 1], 20), thirds])
    assert trusted(predicted, near) == [(Doubt.UNSTABLE,)] * 3


def test_a_small_class_is_judged_by_as_many_neighbours_as_it_can_have() -> None:
    near = neighbours(20, 20, 4)
    predicted = np.repeat([0, 1, 2], [20, 20, 4])
    assert measures(predicted, near, 2, KNOWN) == (1.0, 0.0)


@pytest.mark.parametrize("size", [0, 1])
def test_a_class_without_other_images_is_not_stable(size: int) -> None:
    near = neighbours(20, 20, 3)
    predicted = np.repeat([0, 1, 2], [20, 23 - size, size])
    assert measures(predicted, near, 2, KNOWN)[0] == 0.0


def test_similarity_is_that_of_the_nearest_known_centroid() -> None:
    centroids = normalised(np.array([[1, 0], [0, 1], [3, 4]], np.float32))
    predicted = np.repeat([0, 1, 2], 10)
    (one,) = trust_classes(predicted, neighbours(10, 10, 10), centroids, KNOWN)
    assert one.similarity == pytest.approx(0.8)


def test_without_a_discovered_class_there_is_nothing_to_trust() -> None:
    near, predicted = neighbours(10, 10), np.repeat([0, 1], 10)
    assert trust_classes(predicted, near, np.eye(2, dtype=np.float32), KNOWN) == []
