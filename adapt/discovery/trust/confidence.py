"""How confident the model should be in each class, without a label of the target.

A softmax says how far an image lies from the border of its class, and not whether the class is one:
a group that mixes two classes, or a half of one, is as confident as a true class. What tells is
whether the nearest target images are predicted as the same class. Predictions of known classes are
nearly right as often as their confidence says, unless the run is expected to be wrong.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from scda.adapt.discovery.kmeans import Points
from scda.models.index import Ids
from scda.models.trust import Calibration, Trust

_LARGEST = 50.0  # temperature
_STEPS = 40  # of the bisection, which end 1e-11 apart
_CLOSEST = 0.01  # to 0 and 1 that an agreement counts, so that its log-odds are finite
_DIGITS = 4  # number of decimals, so that a value is the same on every machine


@dataclass(frozen=True)
class Line:
    """The log-odds that an image of a discovered class is right, as a line."""

    base: float
    agreement: float  # per log-odds of the class's agreement
    overall: float  # per log-odds of the agreement of all images predicted as new
    separation: float  # per nat of the run's measure of this name

    def right(self, agreement: float, overall: float, separation: float) -> float:
        """Return the expected share of right images, 0 to 1."""
        odds = self.base + self.agreement * log_odds(agreement) + self.overall * log_odds(overall)
        return 1 / (1 + math.exp(-odds - self.separation * separation))


# Fitted on the development suite; `python -m benchmarks.calibration` prints it anew, and judges
# each family of data by the line that the other families give.
RIGHT = Line(base=-2.94, agreement=0.71, overall=1.44, separation=-0.22)
DOUBT = 0.3  # part of the way from the mean confidence in known classes to the expected accuracy


def calibrate(
    logits: Points,
    near: Ids,
    class_ids: list[str],
    num_known: int,
    *,
    trust: Trust,
    line: Line = RIGHT,
    doubt: float = DOUBT,
) -> Calibration:
    """Return the temperature of every class, so that confidence means how often it is right.

    The temperature of a discovered class makes the mean confidence of its images the share that is
    expected to be right. That of all known classes brings their mean confidence closer to the
    expected accuracy of the run. None is below 1.

    Args:
        logits: Logits of the target, (M, C); K and above are discovered classes.
        near: Rows of the nearest target images of every target image, nearest first, (M, n).
        class_ids: Ids of the classes in the order of the outputs.
        num_known: Number of known classes, K.
        trust: How accurate the run is expected to be, with its measures.
        line: How often images of discovered classes are right.
        doubt: How much the expected accuracy counts for known classes, 0 to 1.
    """
    predicted = np.asarray(logits.argmax(axis=1), np.int64)
    shares = expected_shares(predicted, near, num_known, trust.measures["separation"], line)
    expected = {class_ids[label]: share for label, share in shares.items()}
    return temperatures(
        logits, expected, class_ids, num_known, accuracy=trust.expected_accuracy, doubt=doubt
    )


def temperatures(
    logits: Points,
    expected: Mapping[str, float],
    class_ids: list[str],
    num_known: int,
    *,
    accuracy: float,
    doubt: float = DOUBT,
) -> Calibration:
    """Return the temperatures by which the confidences of a model mean what is expected.

    Args:
        logits: Logits of the target, (M, C), up to a constant of each image.
        expected: Share of the images of a discovered class that is expected to be right, by id;
            other discovered classes keep their confidence.
        class_ids: Ids of the classes in the order of the outputs.
        num_known: Number of known classes, K.
        accuracy: Expected accuracy of the run, 0 to 1.
        doubt: As in `calibrate`.
    """
    predicted = np.asarray(logits.argmax(axis=1), np.int64)
    temperature = dict.fromkeys(class_ids, 1.0)
    known = _of_known(logits[predicted < num_known], accuracy, doubt)
    temperature |= dict.fromkeys(class_ids[:num_known], round(known, _DIGITS))
    for class_id, share in expected.items():
        of_class = logits[predicted == class_ids.index(class_id)]
        if len(of_class):
            temperature[class_id] = round(temperature_for(of_class, share), _DIGITS)
    rounded = {class_id: round(share, _DIGITS) for class_id, share in expected.items()}
    return Calibration(temperature=temperature, expected=rounded)


def expected_shares(
    predicted: Ids, near: Ids, num_known: int, separation: float, line: Line
) -> dict[int, float]:
    """Return discovered class → share of its images that is expected to be right, 0 to 1.

    Arguments are those of `calibrate` and `agreement`; `separation` is the run's measure of this
    name, in nats. Classes without an image are left out.
    """
    labels, counts = np.unique(predicted[predicted >= num_known], return_counts=True)
    if not len(labels):
        return {}
    agreements = [agreement(predicted, near, label) for label in labels.tolist()]
    overall = float(np.average(agreements, weights=counts))
    shares = [line.right(own, overall, separation) for own in agreements]
    return dict(zip(labels.tolist(), shares, strict=True))


def agreement(predicted: Ids, near: Ids, label: int) -> float:
    """Return the share of a class's images' neighbours that are predicted as the class, 0 to 1.

    An image of a small class has as many neighbours as the class has other images.

    Args:
        predicted: Predictions of the target, (M,).
        near: Rows of the nearest target images of every target image, nearest first, (M, n).
        label: Output of the class, which has an image.
    """
    members = np.flatnonzero(predicted == label)
    around = predicted[near[members, : max(1, len(members) - 1)]]
    return float((around == label).mean())


def temperature_for(logits: Points, confidence: float) -> float:
    """Return the temperature, 1 to 50, at which the mean confidence is as given, or closest to it.

    Args:
        logits: Logits of the images, (M, C).
        confidence: Mean of the largest probabilities, 0 to 1.
    """
    low, high = 0.0, math.log(_LARGEST)
    if _mean_confidence(logits, 1.0) <= confidence:
        return 1.0
    for _ in range(_STEPS):
        middle = (low + high) / 2
        above = _mean_confidence(logits, math.exp(middle)) > confidence
        low, high = (middle, high) if above else (low, middle)
    return math.exp(high)


def log_odds(share: float) -> float:
    """Return the log-odds of a share, 0 to 1, as if it were at least 1% from both ends."""
    share = min(1 - _CLOSEST, max(_CLOSEST, share))
    return math.log(share / (1 - share))


def _of_known(logits: Points, expected_accuracy: float, doubt: float) -> float:
    if not len(logits):
        return 1.0
    own = _mean_confidence(logits, 1.0)
    return temperature_for(logits, own + doubt * (expected_accuracy - own))


def _mean_confidence(logits: NDArray[np.float32], temperature: float) -> float:
    scaled = (logits - logits.max(axis=1, keepdims=True)) / temperature
    return float((1 / np.exp(scaled).sum(axis=1)).mean())
