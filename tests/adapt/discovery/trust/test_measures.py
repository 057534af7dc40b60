from typing import Any

import numpy as np
import pytest

from scda.adapt.discovery.kmeans import Points
from scda.adapt.discovery.novelty.comparison import Comparison
from scda.adapt.discovery.trust import measures
from scda.adapt.discovery.trust.absent import absent_classes
from scda.adapt.discovery.trust.calibration import ERROR, KNOWN_ERROR, RISING
from scda.adapt.discovery.trust.measures import MEASURES, measure
from scda.adapt.discovery.trust.outcome import Outcome
from scda.models.index import Ids, normalised

KNOWN, NEW, EACH = 3, 2, 20
SOURCE = np.repeat(np.arange(KNOWN), EACH)
TRUTH = np.repeat(np.arange(KNOWN + NEW), EACH)


def points(labels: Ids, seed: int) -> Points:
    noise = np.random.default_rng(seed).normal(0, 0.1, (len(labels), 8))
    return normalised((np.eye(8)[labels] + noise).astype(np.float32))


def outcome(predicted: Ids = TRUTH, **fields: Any) -> Outcome:
    """Return an outcome that predicts the given classes with probability 0.96."""
    probabilities = (0.95 * np.eye(KNOWN + NEW)[predicted] + 0.01).astype(np.float32)
    usual = {"source": points(SOURCE, 0), "labels": SOURCE, "target": points(TRUTH, 1)}
    return Outcome(Comparison(**{**usual, **fields}), probabilities)


def test_all_is_well_where_every_image_is_right() -> None:
    found = measure(outcome())
    assert set(found) == set(MEASURES) >= {*KNOWN_ERROR.weights, *ERROR.weights, *RISING}
    assert found["border"] == 0
    for name in ("nearest_called_known", "knn_agreement", "prototype_agreement", "evenness"):
        assert found[name] == 1, name
    assert found["neighbour_agreement"] == 1
    assert found["landed_on_new"] < 0.05
    assert found["landing_agreement"] == 1
    assert found["separation"] > 2


def test_known_images_that_are_called_new() -> None:
    lost = outcome(np.where(TRUTH == 0, KNOWN, TRUTH))
    assert measures.nearest_called_known(lost) == pytest.approx(2 / 3)
    assert measures.evenness(lost) == pytest.approx(2 / 3)
    assert measures.landed_on_new(lost) == pytest.approx(1 / 3, abs=0.02)
    assert measures.border(lost) == 0  # a whole group has no border


def test_known_images_with_a_wrong_class() -> None:
    wrong = outcome(np.where(TRUTH == 0, 1, TRUTH))
    assert measures.knn_agreement(wrong) == pytest.approx(2 / 3)
    assert measures.prototype_agreement(wrong) == pytest.approx(2 / 3)
    assert measures.nearest_called_known(wrong) == 1


def test_new_images_that_are_called_known_contradict_landing() -> None:
    missed = outcome(np.where(TRUTH >= KNOWN, 0, TRUTH))
    assert measures.landing_agreement(missed) == pytest.approx(3 / 5)


def test_groups_that_are_cut_in_two_have_a_border() -> None:
    half = outcome(np.where((TRUTH == 0) & (np.arange(len(TRUTH)) % 2 == 0), KNOWN, TRUTH))
    # In one of five groups, half of an image's neighbours are on the other side.
    assert measures.border(half) == pytest.approx(0.1, abs=0.02)
    assert measures.neighbour_agreement(half) == pytest.approx(0.9, abs=0.02)


def test_domains_that_lie_apart_are_not_separated() -> None:
    elsewhere = points(np.full(len(TRUTH), 7), 2)
    assert measures.separation(outcome(target=elsewhere)) < 1


def test_no_image_called_known() -> None:
    found = measure(outcome(np.full(len(TRUTH), KNOWN)))
    for name in ("nearest_called_known", "knn_agreement", "prototype_agreement", "evenness"):
        assert found[name] == 0, name
    assert KNOWN_ERROR.error(found) > 0.95


def test_two_target_images_are_enough() -> None:
    few = outcome(TRUTH[[0, 20]], target=points(TRUTH[[0, 20]], 3))
    assert all(np.isfinite(value) for value in measure(few).values())


def test_classes_whose_images_do_not_resemble_them_are_absent() -> None:
    assert absent_classes(outcome()).tolist() == []
    # Images of a new class are called the last known one, whose own images are missing.
    mistaken = outcome(np.where(TRUTH == KNOWN - 1, KNOWN, np.where(TRUTH == KNOWN, 2, TRUTH)))
    assert absent_classes(mistaken).tolist() == [2]
    assert absent_classes(outcome(np.full(len(TRUTH), KNOWN))).tolist() == []
