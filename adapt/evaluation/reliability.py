"""Whether a confidence means what it says: how many of the images with it are right."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from scda.adapt.discovery.matching import same_class
from scda.adapt.evaluation.metrics import Labels
from scda.models.index import Features

BINS = 15  # of equal width, as in Guo et al. 2017
LEAST = 10  # images of a bin of `even_bins`
_EVEN = 10  # bins of equally many images


@dataclass(frozen=True)
class Bin:
    """The images with a confidence between two bounds; shares are 0 to 1."""

    low: float
    high: float
    images: int  # number of images, 1 or more
    confidence: float  # their mean confidence
    accuracy: float  # share of them that are right


def right(true: Labels, predicted: Labels, num_known: int, num_outputs: int) -> NDArray[np.bool_]:
    """Return which predictions are right, (N,).

    A known class is right for its own images, a discovered one for those of the implicit class that
    it is matched to: one to one, so that the most images are right. A prediction of `num_outputs`
    or above stands for no class and is wrong.

    Args:
        true: True labels, (N,); K and above are implicit classes.
        predicted: Predictions, (N,); K and above are discovered classes.
        num_known: Number of known classes, K.
        num_outputs: Number of known and discovered classes, K + k*.
    """
    correct = np.zeros(len(true), np.bool_)
    is_class = predicted < num_outputs
    correct[is_class] = same_class(predicted[is_class], true[is_class], num_known)
    return correct


def reliability(confidence: Features, correct: NDArray[np.bool_]) -> list[Bin]:
    """Return the bins that hold an image, by rising confidence.

    Args:
        confidence: Confidence of the predictions, (N,), 0 to 1.
        correct: Whether they are right, (N,).
    """
    numbers = np.minimum((confidence * BINS).astype(np.int64), BINS - 1)
    return [
        Bin(
            low=number / BINS,
            high=(number + 1) / BINS,
            images=int((numbers == number).sum()),
            confidence=float(confidence[numbers == number].mean()),
            accuracy=float(correct[numbers == number].mean()),
        )
        for number in np.unique(numbers).tolist()
    ]


def even_bins(confidence: Features, correct: NDArray[np.bool_]) -> list[Bin]:
    """Return bins of about equally many images, `LEAST` or more, by rising confidence.

    Of a few hundred images, most have a high confidence, and ranges of equal width would show a
    handful at all others.

    Args:
        confidence: Confidence of the predictions, (N,), 0 to 1.
        correct: Whether they are right, (N,).
    """
    parts = min(_EVEN, max(1, len(confidence) // LEAST))
    order = np.argsort(confidence, kind="stable")
    return [
        Bin(
            low=float(confidence[rows[0]]),
            high=float(confidence[rows[-1]]),
            images=len(rows),
            confidence=float(confidence[rows].mean()),
            accuracy=float(correct[rows].mean()),
        )
        for rows in np.array_split(order, parts)
        if len(rows)
    ]


def calibration_error(bins: Sequence[Bin]) -> float:
    """Return the expected calibration error (ECE), 0 to 1; 0 without an image.

    Source: Guo et al. 2017, "On Calibration of Modern Neural Networks", Eq. 5.
    """
    images = sum(one.images for one in bins)
    missed = sum(one.images * abs(one.accuracy - one.confidence) for one in bins)
    return missed / images if images else 0.0
