"""How far to trust each discovered class, measured on its images' neighbours without a label.

A class that exists keeps its images together, apart from images of known classes. Images of a mixed
class lie among those of other classes; images of a part of a known class lie among known ones.
"""

import numpy as np

from scda.adapt.discovery.kmeans import Points
from scda.models.index import Ids
from scda.models.trust import ClassTrust, Doubt

# Chosen on the development suite; benchmarks/results/class-trust.md says how well they hold.
MIN_STABILITY = 0.85
MAX_LEAK = 0.08
_DIGITS = 4  # number of decimals, so that a measure is the same on every machine


def trust_classes(predicted: Ids, near: Ids, centroids: Points, num_known: int) -> list[ClassTrust]:
    """Return how far to trust every discovered class, in the order of the outputs.

    Args:
        predicted: Predictions of the target, (M,); K and above are discovered classes.
        near: Rows of the nearest target images of every target image, nearest first, (M, n).
        centroids: Centroids of all classes, of length 1, (C, D).
        num_known: Number of known classes, K.
    """
    similar = (centroids[num_known:] @ centroids[:num_known].T).max(axis=1)
    return [
        _trusted(*measures(predicted, near, label, num_known), float(cosine))
        for label, cosine in enumerate(similar, num_known)
    ]


def measures(predicted: Ids, near: Ids, label: int, num_known: int) -> tuple[float, float]:
    """Return the stability and the leak of a class, each 0 to 1.

    Stability is the share of its images most of whose neighbours are predicted as the class; leak
    is the share of its images' neighbours that are predicted as known. An image of a small class
    has as many neighbours as the class has other images, so that size alone makes none unstable.
    A class without images, or with one, is not stable.

    Args:
        predicted: Predictions of the target, (M,); K and above are discovered classes.
        near: Rows of the nearest target images of every target image, nearest first, (M, n).
        label: Output of the class.
        num_known: Number of known classes, K.
    """
    members = np.flatnonzero(predicted == label)
    around = predicted[near[members, : max(1, len(members) - 1)]]
    if not around.size:
        return 0.0, 0.0
    together = (around == label).mean(axis=1) > 0.5
    return float(together.mean()), float((around < num_known).mean())


def _trusted(stability: float, leak: float, similarity: float) -> ClassTrust:
    unstable, leaks = stability < MIN_STABILITY, leak > MAX_LEAK
    return ClassTrust(
        stability=round(stability, _DIGITS),
        leak=round(leak, _DIGITS),
        similarity=round(similarity, _DIGITS),
        doubts=(Doubt.UNSTABLE,) * unstable + (Doubt.LEAKS,) * leaks,
    )
