from dataclasses import replace

import numpy as np

from scda.adapt.discovery.discover import Discovery
from scda.adapt.discovery.findings import Status
from scda.adapt.discovery.seeds import certain, named, with_labelled
from scda.adapt.discovery.selection import Candidates
from scda.models.index import Ids, normalised

# Images 0 and 1 are known, of the outputs 0 and 1, which are the classes 0 and 2. The others are
# new: 2 to 4 lie together, 5 to 8 are two pairs in one cluster.
FOUND = Discovery(
    2,
    Candidates(np.array([0, 1]), np.array([0, 1]), np.array([2, 3, 4, 5, 6, 7, 8])),
    np.array([0, 0, 0, 1, 1, 1, 1]),
)
CLASSES = np.array([0, 2])
POINTS = normalised(np.array([[1, 0, 0]] * 5 + [[0, 1, 1]] * 2 + [[0, 1, -1]] * 2, np.float32))


def seeds(**labels: int) -> Ids:
    """Return the class of each image, as in `_3=1` for image 3."""
    found = np.full(9, -1)
    for image, label in labels.items():
        found[int(image[1:])] = label
    return found


def test_labelled_images_are_certain() -> None:
    logits = np.array([[1, 0], [1, 0], [1, 0]], np.float32)
    settled = certain(logits, np.array([1, -1, 2]))
    assert settled[0, 1] == 0
    assert settled[0, 0] < -20
    assert (settled[1:] == logits[1:]).all()  # without a label, or one that has no output
    assert (logits == [[1, 0]] * 3).all()


def test_every_labelled_image_is_a_candidate() -> None:
    candidates = replace(FOUND.candidates, implicit=np.array([2, 6]))
    fewer = replace(FOUND, candidates=candidates, implicit_labels=np.array([0, 1]))
    found = with_labelled(fewer, seeds(_1=2, _4=0))
    assert found.candidates.known.tolist() == [0, 1, 4]
    assert found.candidates.known_labels.tolist() == [0, 1, 0]
    assert found.candidates.implicit.tolist() == [2, 6]


def test_a_labelled_image_that_stood_in_for_a_new_one_is_none() -> None:
    found = with_labelled(FOUND, seeds(_2=0, _3=0, _4=0, _5=1))
    assert found.candidates.known.tolist() == [0, 1, 2, 3, 4, 5]
    assert found.candidates.implicit.tolist() == [6, 7, 8]
    assert found.implicit_labels.tolist() == [0, 0, 0]
    assert found.k_star == 1


def test_a_labelled_image_names_its_whole_cluster() -> None:
    found = named(FOUND, seeds(_3=1), CLASSES, POINTS)
    assert found.k_star == 1
    assert found.candidates.known.tolist() == [0, 1, 2, 3, 4]
    assert found.candidates.known_labels.tolist() == [0, 2, 1, 1, 1]
    assert found.candidates.implicit.tolist() == [5, 6, 7, 8]
    assert found.implicit_labels.tolist() == [0, 0, 0, 0]
    assert found.verdict is None


def test_labelled_images_of_two_classes_divide_a_cluster() -> None:
    found = named(FOUND, seeds(_5=1, _8=3), CLASSES, POINTS)
    assert found.k_star == 1
    assert found.candidates.known.tolist() == [0, 1, 5, 6, 7, 8]
    assert found.candidates.known_labels.tolist() == [0, 2, 1, 1, 3, 3]


def test_a_labelled_image_keeps_its_label_among_nearer_ones_of_another_class() -> None:
    found = named(FOUND, seeds(_5=1, _6=3, _7=3, _8=3), CLASSES, POINTS)
    assert found.candidates.known_labels[2:].tolist() == [1, 3, 3, 3]


def test_an_image_in_the_wrong_cluster_comes_to_its_labelled_class() -> None:
    strayed = replace(FOUND, implicit_labels=np.array([0, 0, 1, 1, 1, 1, 1]))
    found = named(strayed, seeds(_3=1), CLASSES, POINTS)
    assert found.candidates.known.tolist() == [0, 1, 2, 3, 4]
    assert found.candidates.implicit.tolist() == [5, 6, 7, 8]


def test_nothing_is_new_where_every_cluster_is_named() -> None:
    found = named(FOUND, seeds(_2=1, _5=3), CLASSES, POINTS)
    assert found.k_star == 0
    assert len(found.candidates.implicit) == len(found.implicit_labels) == 0
    assert found.verdict is not None
    assert found.verdict.status == Status.NOTHING_NEW
