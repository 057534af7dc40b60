import dataclasses

import numpy as np
import pytest

from scda.adapt.discovery.communities import shared_neighbours
from scda.adapt.discovery.counting.accuracy import matching_communities
from scda.adapt.discovery.grain import Grain, grain_of, likeness
from scda.adapt.discovery.matching import clustering_accuracy
from scda.adapt.discovery.novelty.landing import class_centres
from scda.adapt.discovery.novelty.touching import beside_known
from scda.models.index import normalised
from tests.adapt.discovery.touching_classes import KNOWN, NEW, pairs

# The first class of a pair is known, in every second pair the other one, too.
SOURCE, LABELS = pairs(KNOWN, seed=0)
TARGET, TRUTH = pairs(KNOWN + NEW, seed=1)
IS_NEW = np.isin(TRUTH, NEW)
PREDICTED = np.searchsorted(KNOWN, np.where(IS_NEW, TRUTH - 1, TRUTH))  # as the class beside it


def grain() -> Grain:
    found = grain_of(SOURCE, np.searchsorted(KNOWN, LABELS))
    assert found
    return found


def test_likeness_is_that_of_classes_that_touch() -> None:
    centres = np.eye(4, dtype=np.float32)
    assert likeness(centres) == pytest.approx(0)
    centres[1] = normalised(np.array([[0.9, 0.1, 0, 0]], np.float32))[0]
    assert likeness(centres) == pytest.approx(0.9 / np.hypot(0.9, 0.1), abs=1e-6)
    assert likeness(centres[:1]) == -1  # no other class


def test_a_source_whose_classes_lie_apart_or_alone_has_no_grain() -> None:
    apart = np.isin(LABELS, KNOWN[::3])
    labels = np.unique(LABELS[apart], return_inverse=True)[1]
    assert grain_of(SOURCE[apart], labels) is None
    one = LABELS == 0
    assert grain_of(SOURCE[one], LABELS[one]) is None


@pytest.mark.parametrize("classes", [KNOWN, KNOWN + NEW, NEW])
def test_the_grain_divides_as_many_classes_as_there_are(classes: list[int]) -> None:
    points, truth = pairs(classes, seed=2)
    found = grain().communities(shared_neighbours(points))
    assert abs(found.max() + 1 - len(classes)) <= 1
    assert clustering_accuracy(found, truth) > 0.9


def test_groups_beside_a_known_class_are_found_and_those_of_the_class_are_not() -> None:
    centres = class_centres(SOURCE, np.searchsorted(KNOWN, LABELS))
    found = beside_known(centres, TARGET, PREDICTED, np.zeros(len(TARGET), bool), grain())
    assert found[IS_NEW].mean() > 0.9
    assert found[~IS_NEW].mean() < 0.1


def test_what_is_new_anyway_is_not_found_again_and_stands_for_no_class() -> None:
    centres = class_centres(SOURCE, np.searchsorted(KNOWN, LABELS))
    assert not beside_known(centres, TARGET, PREDICTED, np.ones(len(TARGET), bool), grain()).any()


def test_groups_as_like_their_class_as_others_are_known() -> None:
    centres = class_centres(SOURCE, np.searchsorted(KNOWN, LABELS))
    alike = dataclasses.replace(grain(), likeness=-1.0)  # other classes are never that far away
    assert not beside_known(centres, TARGET, PREDICTED, np.zeros(len(TARGET), bool), alike).any()


def test_votes_count_touching_classes_with_the_grain() -> None:
    order = np.argsort(IS_NEW, kind="stable")
    labels, num_new = PREDICTED[~IS_NEW], int(IS_NEW.sum())
    counted = matching_communities(TARGET[order], labels, num_new, grain())
    assert abs(counted - len(NEW)) <= 1
