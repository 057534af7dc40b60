from itertools import permutations

import numpy as np
import pytest

from scda.adapt.discovery.matching import (
    clustering_accuracy,
    contingency,
    match,
    same_class,
)


def accuracy_by_hand(clusters: list[int], labels: list[int]) -> float:
    size = max(*clusters, *labels) + 1
    return max(
        sum(label == names[c] for c, label in zip(clusters, labels, strict=True)) / len(labels)
        for names in permutations(range(size))
    )


@pytest.mark.parametrize("seed", range(20))
def test_clustering_accuracy_is_the_best_renaming(seed: int) -> None:
    rng = np.random.default_rng(seed)
    clusters = rng.integers(0, int(rng.integers(1, 7)), 12)
    labels = rng.integers(0, int(rng.integers(1, 5)), 12)
    expected = accuracy_by_hand(clusters.tolist(), labels.tolist())
    assert clustering_accuracy(clusters, labels) == pytest.approx(expected)


def test_left_over_clusters_count_as_wrong() -> None:
    split = np.array([0, 0, 1, 1, 2, 2, 2, 3])
    assert clustering_accuracy(split, np.array([0, 0, 0, 0, 1, 1, 1, 1])) == pytest.approx(5 / 8)


def test_clustering_accuracy_of_no_image_is_0() -> None:
    nothing = np.empty(0, np.int64)
    assert clustering_accuracy(nothing, nothing) == 0


def test_contingency_counts_pairs() -> None:
    rows, columns = np.array([0, 0, 2, 2, 2]), np.array([1, 1, 0, 1, 0])
    assert contingency(rows, columns).tolist() == [[0, 2], [0, 0], [2, 1]]
    assert contingency(rows, columns, (3, 3)).tolist() == [[0, 2, 0], [0, 0, 0], [2, 1, 0]]


def test_the_match_has_the_largest_sum() -> None:
    assert match(np.array([[5, 4], [5, 1], [0, 0]])) == {0: 1, 1: 0}
    assert match(np.array([[1.0, 2.5, 2.0]])) == {0: 1}
    assert match(np.empty((0, 3), np.int64)) == {}


def test_two_labellings_agree_by_known_class_and_by_matched_discovered_class() -> None:
    first = np.array([0, 0, 1, 2, 2, 2, 3, 4])
    second = np.array([0, 1, 2, 5, 5, 3, 3, 1])  # 2 is called 5 there, and 3 as here
    found = same_class(first, second, 2)
    assert found.tolist() == [True, False, False, True, True, False, True, False]
    assert not same_class(np.array([2, 0]), np.array([0, 2]), 1).any()
