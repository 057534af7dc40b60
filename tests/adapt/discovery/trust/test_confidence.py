import dataclasses

import numpy as np
import pytest

from scda.adapt.discovery.neighbours import nearest_others
from scda.adapt.discovery.trust.confidence import (
    RIGHT,
    Line,
    agreement,
    calibrate,
    log_odds,
    temperature_for,
)
from scda.models.index import normalised
from scda.models.trust import Trust

KNOWN = 1
SURE = Trust(expected_accuracy=1, low=1, high=1, measures={"separation": 1})
IDS = ["known-000", "discovered-000", "discovered-001"]


def domain(*classes: int) -> np.ndarray:
    """The nearest images of a target with 20 images of each class: points near an axis each."""
    noise = np.random.default_rng(0).normal(size=(20 * len(classes), 8), scale=0.1)
    axes = np.eye(8)[np.repeat(classes, 20)]
    return nearest_others(normalised(np.asarray(axes + noise, np.float32)), 10)


def sure(predicted: np.ndarray) -> np.ndarray:
    """Logits that are as certain of every prediction: a confidence of 0.98."""
    return np.asarray(4.6 * np.eye(len(IDS))[predicted], np.float32)


def mean_confidence(logits: np.ndarray, temperature: float) -> float:
    odds = np.exp(logits / temperature)
    return float((odds.max(axis=1) / odds.sum(axis=1)).mean())


def test_a_class_among_its_own_is_trusted_more_than_halves_of_one() -> None:
    predicted = np.repeat([0, 1, 2], 20)
    whole = calibrate(sure(predicted), domain(0, 1, 2), IDS, KNOWN, trust=SURE)
    halves = calibrate(sure(predicted), domain(0, 1, 1), IDS, KNOWN, trust=SURE)
    assert halves.expected["discovered-000"] < 0.6 < 0.9 < whole.expected["discovered-000"]
    assert halves.temperature["discovered-000"] > 1
    assert whole.temperature["discovered-000"] == 1


def test_the_mean_confidence_of_a_discovered_class_becomes_what_is_expected() -> None:
    predicted = np.repeat([0, 1, 2], 20)
    logits, line = sure(predicted), Line(base=0, agreement=1, overall=0, separation=0)
    found = calibrate(logits, domain(0, 1, 1), IDS, KNOWN, trust=SURE, line=line)
    assert found.temperature["known-000"] == 1
    assert "known-000" not in found.expected
    assert 0.34 < found.expected["discovered-000"] < 0.6
    of_class = mean_confidence(logits[20:40], found.temperature["discovered-000"])
    assert of_class == pytest.approx(found.expected["discovered-000"], abs=1e-3)


def test_a_class_without_images_keeps_its_confidence() -> None:
    found = calibrate(sure(np.repeat([0, 1], 20)), domain(0, 1), IDS, KNOWN, trust=SURE)
    assert found.temperature["discovered-001"] == 1
    assert set(found.expected) == {"discovered-000"}


def test_a_single_image_has_a_neighbour_and_is_not_trusted() -> None:
    near = domain(0, 1)
    predicted = np.append(np.repeat([0, 1], 20)[:-1], 2)
    assert agreement(predicted, near, 2) == 0.0
    found = calibrate(sure(predicted), near, IDS, KNOWN, trust=SURE)
    assert found.expected["discovered-001"] < 0.1


@pytest.mark.parametrize("confidence", [0.4, 0.6, 0.9])
def test_a_temperature_gives_the_confidence(confidence: float) -> None:
    logits = np.random.default_rng(0).normal(size=(50, 5), scale=8).astype(np.float32)
    temperature = temperature_for(logits, confidence)
    assert mean_confidence(logits, temperature) == pytest.approx(confidence, abs=1e-4)


def test_a_temperature_stays_between_1_and_50() -> None:
    logits = np.array([[4.0, 0.0], [3.0, 0.0]], np.float32)
    assert temperature_for(logits, 1.0) == 1
    assert temperature_for(logits, 0.1) == pytest.approx(50)


def test_log_odds_are_finite_and_agreement_raises_what_is_expected() -> None:
    assert log_odds(0.0) == pytest.approx(-4.595, abs=1e-3)
    assert log_odds(1.0) == pytest.approx(4.595, abs=1e-3)
    assert RIGHT.right(0.9, 0.9, 1) > RIGHT.right(0.6, 0.9, 1) > RIGHT.right(0.6, 0.6, 1)


def test_the_expected_accuracy_lowers_the_confidence_in_known_classes_alone() -> None:
    predicted = np.repeat([0, 1, 2], 20)
    logits, near = sure(predicted), domain(0, 1, 2)
    doubted = dataclasses.replace(SURE, expected_accuracy=0.48)
    found = calibrate(logits, near, IDS, KNOWN, trust=doubted, doubt=0.4)
    own = mean_confidence(logits[:20], 1)
    lowered = mean_confidence(logits[:20], found.temperature["known-000"])
    assert lowered == pytest.approx(own + 0.4 * (0.48 - own), abs=1e-3)
    sure_of_all = calibrate(logits, near, IDS, KNOWN, trust=SURE, doubt=0.4)
    assert sure_of_all.temperature["known-000"] == 1
    assert found.expected == sure_of_all.expected
