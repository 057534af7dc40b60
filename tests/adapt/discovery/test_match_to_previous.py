from itertools import permutations

import numpy as np
import pytest

from scda.adapt.discovery.discover import Discovery, match_to_previous
from scda.adapt.discovery.selection import Candidates


def discovery(implicit: list[int], labels: list[int], k_star: int) -> Discovery:
    nothing = np.empty(0, np.int64)
    return Discovery(
        k_star, Candidates(nothing, nothing, np.array(implicit)), np.array(labels), None
    )


def test_classes_keep_their_numbers_while_they_keep_their_images() -> None:
    old = discovery([0, 1, 2, 3, 4, 5], [0, 0, 1, 1, 2, 2], 3)
    new = discovery([1, 2, 3, 5, 6], [2, 0, 0, 1, 1], 3)
    assert match_to_previous(new, old).implicit_labels.tolist() == [0, 1, 1, 2, 2]


def test_a_class_that_is_new_gets_the_next_number() -> None:
    old = discovery([0, 1, 2, 3], [0, 0, 1, 1], 2)
    new = discovery([0, 1, 2, 3, 8, 9], [2, 2, 1, 1, 0, 0], 3)
    assert match_to_previous(new, old).implicit_labels.tolist() == [0, 0, 1, 1, 2, 2]


def test_a_class_that_is_gone_leaves_no_gap() -> None:
    old = discovery([0, 1, 2, 3, 4, 5], [0, 0, 1, 1, 2, 2], 3)
    new = discovery([0, 1, 4, 5], [1, 1, 0, 0], 2)
    assert match_to_previous(new, old).implicit_labels.tolist() == [0, 0, 1, 1]


def test_numbers_follow_the_most_shared_images() -> None:
    rng = np.random.default_rng(0)
    old_labels, new_labels = rng.integers(0, 4, 60), rng.integers(0, 4, 60)
    old, new = (
        discovery(list(range(60)), labels.tolist(), 4) for labels in (old_labels, new_labels)
    )
    kept = (match_to_previous(new, old).implicit_labels == old_labels).sum()
    best = max(
        (np.array(names)[new_labels] == old_labels).sum() for names in permutations(range(4))
    )
    assert kept == best


@pytest.mark.parametrize(
    "old", [None, discovery([], [], 0), discovery([7, 8], [0, 1], 2)], ids=["none", "0", "disjoint"]
)
def test_without_shared_images_there_is_nothing_to_match(old: Discovery | None) -> None:
    new = discovery([0, 1], [1, 0], 2)
    assert match_to_previous(new, old) is new
