"""Landing: where in the target the images of the source belong, and where none of them does.

Every source image spreads over the target images that are similar to it. Images of known classes
receive their class; an image that no class lands on is an orphan.
"""

import numpy as np
from scipy.sparse import csr_array

from scda.adapt.discovery.kmeans import Points
from scda.adapt.discovery.propagation import spread
from scda.adapt.runtime.threads import in_parallel
from scda.models.index import Ids, normalised

_TEMPERATURE = 0.035  # .02 to .05 do about the same
_REACH = 0.9  # of the diffusion over the target's graph
_SIMILAR = 0.5  # of the usual similarity to a class; below, a class counts less
_QUARTILE = 0.75
_LEAST = 0.01
_SMALLEST = 1e-9
_BLOCK = 256  # source images at a time, at most
_MOST_HELD = 2**25  # similarities of a block to all target images


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
        in_parallel(lambda label: _received(source[labels == label], target), range(num_known)),
        axis=1,
    )
    return np.asarray(spread(landed * len(target) / num_known, graph, _REACH), np.float32)


def similarity(centres: Points, target: Points, graph: csr_array) -> Points:
    """Return the mean cosine of an image's surroundings to every class's centre, (M, K).

    Args:
        centres: Centres of the known classes, of length 1, (K, D).
        target: Points of the target, of length 1, (M, D).
        graph: Neighbour graph of the target.
    """
    surroundings = spread(np.ones((len(target), 1)), graph, _REACH)
    cosines = spread(target @ centres.T, graph, _REACH)
    return np.asarray(cosines / np.maximum(surroundings, _SMALLEST), np.float32)


def believed(landed: Points, similar: Points) -> Points:
    """Return landings that are reduced where the image does not resemble the class, (M, K).

    A class that the target lacks has to land somewhere, often on the nearest new class.

    Args:
        landed: As `landing` returns it, (M, K).
        similar: Similarity to the classes' centres in the source, (M, K).
    """
    return np.asarray(landed * credibility(similar, similar.max(axis=0)), np.float32)


def credibility(similar: Points, best: Points) -> Points:
    """Return 1 where a similarity is at least half the usual one, and less below, to 1e-4.

    Args:
        similar: Similarities, of any shape.
        best: Of every class the best similarity, (K,); their upper quartile is the usual one.
    """
    usual = max(float(np.quantile(best, _QUARTILE)), _SMALLEST)
    return np.asarray(np.clip(similar / (_SIMILAR * usual), _LEAST, 1) ** 2, np.float32)


def class_centres(points: Points, labels: Ids) -> Points:
    """Return the centre of every class of the source, of length 1, (K, D)."""
    means = [points[labels == label].mean(axis=0) for label in range(int(labels.max()) + 1)]
    return normalised(np.stack(means))


def _received(points: Points, target: Points) -> Points:
    """Return the mean share of each point that every target image receives, (M,)."""
    total = np.zeros(len(target), np.float64)
    block = max(1, min(_BLOCK, _MOST_HELD // len(target)))
    for start in range(0, len(points), block):
        shares = points[start : start + block] @ target.T
        _softmax(shares)
        total += shares.sum(axis=0)
    return np.asarray(total / len(points), np.float32)


def _softmax(cosines: Points) -> None:
    """Replace each row, in place, by the softmax over the temperature: blocks are large."""
    cosines /= _TEMPERATURE
    cosines -= cosines.max(axis=1, keepdims=True)
    np.exp(cosines, out=cosines)
    cosines /= cosines.sum(axis=1, keepdims=True)
