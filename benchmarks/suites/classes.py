"""Discovered classes against the truth: what was measured without labels, and what they hold."""

from dataclasses import asdict, dataclass

import numpy as np

from benchmarks.open_set.results import Record
from scda.adapt.discovery.trust.classes import measures
from scda.adapt.evaluation.metrics import Labels

_HALF = 0.5  # of a class's images that its largest true class needs


@dataclass(frozen=True)
class Judged:
    """A discovered class with images; shares are 0 to 1."""

    size: int  # number of images
    stability: float
    leak: float
    purity: float  # share of its images that are of its largest true class
    known: bool  # whether this true class is a known one

    @property
    def bad(self) -> bool:
        """Whether the class is false or mixed."""
        return self.known or self.purity < _HALF


def judged_classes(predicted: Labels, near: Labels, truth: Labels, num_known: int) -> list[Record]:
    """Return the fields of `Judged` for every discovered class with images.

    Args:
        predicted: Predictions of the target, (N,); K and above are discovered classes.
        near: Nearest target images of every one, (N, n).
        truth: True classes, (N,); K and above are new.
        num_known: Number of known classes, K.
    """
    return [
        asdict(_judged(label, predicted, near, truth, num_known))
        for label in np.unique(predicted[predicted >= num_known]).tolist()
    ]


def _judged(label: int, predicted: Labels, near: Labels, truth: Labels, num_known: int) -> Judged:
    stability, leak = measures(predicted, near, label, num_known)
    counts = np.bincount(truth[predicted == label])
    return Judged(
        size=int(counts.sum()),
        stability=round(stability, 4),
        leak=round(leak, 4),
        purity=round(float(counts.max() / counts.sum()), 4),
        known=bool(counts.argmax() < num_known),
    )
