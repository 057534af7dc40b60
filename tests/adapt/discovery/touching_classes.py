"""Made-up classes in pairs that touch."""

import numpy as np

from scda.adapt.discovery.kmeans import Points
from scda.models.index import Ids, normalised

_EACH = 40  # images
_PAIRS, _WIDTH = 12, 48
KNOWN = sorted([*range(0, 2 * _PAIRS, 2), *range(1, _PAIRS, 2)])  # classes; 2n touches 2n + 1
NEW = list(range(_PAIRS + 1, 2 * _PAIRS, 2))


def pairs(classes: list[int], *, seed: int) -> tuple[Points, Ids]:
    """Return points of length 1, (N, 48), and their classes, (N,)."""
    centres = np.random.default_rng(9).normal(size=(2 * _PAIRS, _WIDTH))
    centres[1::2] = centres[::2] + 0.55 * centres[1::2]
    labels = np.repeat(classes, _EACH)
    noise = np.random.default_rng(seed).normal(size=(len(labels), _WIDTH))
    return normalised((centres[labels] + 0.3 * noise).astype(np.float32)), labels
