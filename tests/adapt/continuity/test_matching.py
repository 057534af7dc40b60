import numpy as np
import pytest

from scda.adapt.continuity.changes import changes, origins
from scda.adapt.continuity.matching import (
    OVERLAP,
    RIVAL,
    SIMILARITY,
    Evidence,
    match_classes,
    match_parts,
    match_vanished,
)
from scda.models.previous import Became


def evidence(
    shared: list[list[int]],
    *,
    sizes: list[int] | None = None,
    similarity: list[list[float]] | None = None,
    answers: list[int] | None = None,
) -> Evidence:
    table = np.array(shared)
    return Evidence(
        table,
        np.array(sizes) if sizes else table.sum(axis=0),
        np.array(similarity or np.zeros(table.shape), np.float32),
        np.array(answers or range(len(table))),
    )


def matched(found: Evidence, *, num_known: int = 0) -> list[int]:
    old, new = found.shared.shape
    rows = match_classes(found, np.arange(old) >= num_known, np.arange(new) >= num_known)
    return [int(row) for row in rows]


@pytest.mark.parametrize(
    ("shared", "expected"),
    [
        ([[9, 0], [0, 9]], [0, 1]),
        ([[0, 9], [9, 0]], [1, 0]),  # by images, whatever the order
        ([[9, 5], [0, 0]], [0, -1]),  # a split: the larger part
        ([[9, 0, 4], [0, 9, 5]], [0, 1, -1]),  # of neither
        ([[6], [4]], [0]),  # a union with one that is clearly larger
        ([[6], [5]], [-1]),  # a union of equals is neither
        ([[4], [3], [3]], [-1]),  # of three
        ([[9, 0], [8, 30]], [0, 1]),  # a part of a large class is no equal of a whole small one
        ([[9, 2], [10, 0]], [-1, -1]),  # most of both is in one class, too little in the other
    ],
)
def test_images_in_common_decide_one_to_one(shared: list[list[int]], expected: list[int]) -> None:
    assert (OVERLAP, RIVAL) == (0.55, 0.8)
    assert matched(evidence(shared)) == expected


def test_a_class_of_new_images_is_not_taken_for_the_one_of_its_few_images_in_common() -> None:
    # Half of the target is in common; of the second class, 2 of 40.
    found = evidence([[30, 2]], sizes=[40, 40])
    assert matched(found) == [0, -1]
    assert origins(found, 1) == ()
    alone = evidence([[0, 2], [30, 0]], sizes=[40, 40])
    assert matched(alone) == [1, -1]


def test_merged_classes_are_one_and_its_parts_share_their_ids() -> None:
    merged = [0, 0, 2]
    # Classes 0 and 1 are one; together they are a class again: it has the id that answers.
    assert matched(evidence([[4, 0], [9, 0], [0, 9]], answers=merged)) == [0, 2]
    # In two parts, the larger one has the id that answers, and the smaller one the other.
    assert matched(evidence([[9, 1], [0, 8], [0, 0]], answers=merged)) == [0, 1]
    # A part without an image of the merged class does not get its id.
    assert matched(evidence([[9, 6], [0, 0], [0, 0]], answers=merged)) == [0, -1]


def test_known_classes_are_no_candidates_but_have_images() -> None:
    # The new class 1 has images that were predicted as known before.
    assert matched(evidence([[9, 6], [0, 1]]), num_known=1) == [-1, -1]
    assert matched(evidence([[9, 1], [0, 6]]), num_known=1) == [-1, 1]


def test_without_images_in_common_the_centroids_decide() -> None:
    near, far = SIMILARITY + 0.1, SIMILARITY - 0.1
    none = [[0, 0], [0, 0]]
    sizes = [5, 5]
    assert matched(evidence(none, sizes=sizes, similarity=[[0.1, near], [far, 0.2]])) == [-1, 0]
    # Each must be the other's most similar one.
    both = [[near, near + 0.05], [0.0, 0.0]]
    assert matched(evidence(none, sizes=sizes, similarity=both)) == [-1, 0]
    # One that is taken by its images is not free, and what resembles it most is none of the rest.
    taken = evidence([[9, 0], [0, 0]], sizes=[9, 5], similarity=[[0.9, near + 0.05], [0.0, near]])
    assert matched(taken) == [0, -1]


def test_a_part_had_nearly_only_images_of_the_class_and_looks_like_it() -> None:
    shared, alike = [[9, 4, 4, 3, 0], [0, 0, 0, 2, 5]], [[0.9, 0.8, 0.5, 0.8, 0.0], [0.0] * 5]
    found = evidence(shared, similarity=alike)
    classes = np.array([0, -1, -1, -1, 1])  # the third does not look like it, the fourth is mixed
    assert match_parts(found, classes, np.array([True, True])).tolist() == [-1, 0, -1, -1, -1]
    assert set(match_parts(found, classes, np.array([False, True]))) == {-1}
    # Of a class that is mostly new images, the few in common do not speak.
    grown = evidence(shared, sizes=[9, 40, 4, 5, 5], similarity=alike)
    assert set(match_parts(grown, classes, np.array([True, True]))) == {-1}


def test_a_vanished_class_is_the_most_similar_one_and_no_other_is_more_so() -> None:
    near, everything = np.array([0.1, 0.85, 0.1]), np.ones(3, bool)
    similarity = np.array([[0.9, 0.0, 0.0], [0.85, 0.84, 0.0], [0.0, 0.0, SIMILARITY - 0.01]])
    assert match_vanished(similarity, near, everything) == {0: 0}
    assert match_vanished(similarity, near, ~everything) == {}


def test_what_became_of_each_class() -> None:
    shared = [
        [9, 0, 0, 0],  # kept
        [0, 6, 4, 0],  # split, and keeps its id
        [8, 0, 0, 0],  # united with the first
        [0, 0, 0, 0],  # vanished
        [0, 0, 5, 5],  # split, and nothing has its id
        [9, 1, 0, 0],  # one stray image is not worth telling
    ]
    found = changes(evidence(shared), np.array([0, 1, -1, -1, -1, -1]))
    assert [(one.became, one.into) for one in found] == [
        (Became.KEPT, (0,)),
        (Became.SPLIT, (1, 2)),
        (Became.UNITED, (0,)),
        (Became.VANISHED, ()),
        (Became.UNITED, (2, 3)),
        (Became.UNITED, (0,)),
    ]


def test_the_origins_of_a_class_are_those_of_many_of_its_images() -> None:
    assert origins(evidence([[3], [10], [1]]), 0) == (1, 0)
