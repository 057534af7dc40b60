"""Landing: where in the target the images of the source belong, and where none of them does.

Every source image spreads over the target images that are similar to it. Images of known classes
receive their class; an image that no class lands on is an orphan.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.special import softmax

from scda.adapt.discovery.kmeans import Points
from scda.models.index import Ids, normalised

_Columns = NDArray[np.floating[Any]]

_TEMPERATURE = 0.035  # .02 to .05 do about the same
_REACH = 0.9  # of the diffusion over the target's graph
_STEPS = 30
_SIMILAR = 0.5  # of the usual similarity to a class; below, a landing counts less
_QUARTILE = 0.75
_LEAST = 0.01
_BLOCK = 256  # source images at a time; (_BLOCK, M) similarities are held


def landing(source: Points, labels: Ids, target: Points, graph: csr_array) -> Points:
    """Return how much of every class lands on every target image, (M, K).

    An image receives 1 of its class where all classes have equally many images; an orphan
    receives 0 of each.

    Args:
        source: Points of the source, of length 1, (N, D).
        labels: Labels of the source, (N,), 0 to K - 1.
        target: Points of the target, of length 1, (M, D).
        graph: Neighbour graph of the target, as `neighbour_graph` returns it.
    """
    num_known = int(labels.max()) + 1
    landed = np.stack(
        [_spread(source[labels == label], target) for label in range(num_known)], axis=1
    )
    return diffuse(landed * len(target) / num_known, graph)


def similarity(source: Points, labels: Ids, target: Points, graph: csr_array) -> Points:
    """Return the mean cosine of an image's surroundings to every class's centre, (M, K).

    Arguments are those of `landing`.
    """
    of_class = [source[labels == label].mean(axis=0) for label in range(int(labels.max()) + 1)]
    cosines = target @ normalised(np.stack(of_class)).T
    surrounding = diffuse(np.ones((len(target), 1)), graph)
    return np.asarray(diffuse(cosines, graph) / np.maximum(surrounding, 1e-9), np.float32)


def believed(landed: Points, similar: Points) -> Points:
    """Return landings that are reduced where the image does not resemble the class, (M, K).

    A class that the target lacks has to land somewhere, often on the nearest new class.

    Args:
        landed: As `landing` returns it, (M, K).
        similar: As `similarity` returns it, (M, K).
    """
    usual = max(float(np.quantile(similar.max(axis=0), _QUARTILE)), 1e-6)
    weights = np.clip(similar / (_SIMILAR * usual), _LEAST, 1) ** 2
    return np.asarray(landed * weights, np.float32)


def diffuse(columns: _Columns, graph: csr_array) -> Points:
    """Return columns spread over the graph to neighbours, and theirs, and so on, (M, C).

    Source: Zhou et al. 2004, "Learning with Local and Global Consistency".
    """
    spread = columns
    for _ in range(_STEPS):
        spread = _REACH * (graph @ spread) + (1 - _REACH) * columns
    return np.asarray(spread, np.float32)


def _spread(points: Points, target: Points) -> Points:
    """Return the mean share of each point that every target image receives, (M,)."""
    total = np.zeros(len(target), np.float64)
    for start in range(0, len(points), _BLOCK):
        cosines = points[start : start + _BLOCK] @ target.T
        total += softmax(cosines / _TEMPERATURE, axis=1).sum(axis=0)
    return np.asarray(total / len(points), np.float32)
