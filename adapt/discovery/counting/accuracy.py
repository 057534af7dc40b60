"""How many new classes: the communities at the resolution that finds T_kn's classes best."""

import numpy as np
from numpy.typing import NDArray

from scda.adapt.discovery.communities import communities, shared_neighbours, thinned_rows
from scda.adapt.discovery.counting.estimate import KEstimate
from scda.adapt.discovery.grain import Grain
from scda.adapt.discovery.kmeans import Points
from scda.adapt.discovery.matching import clustering_accuracy
from scda.adapt.discovery.space import Space
from scda.models.index import Ids

_RESOLUTIONS = np.geomspace(0.1, 4, 16)
_MIN_SIZE = 3  # images; a smaller community is no class
_ENOUGH = 1.6  # times as many communities of T_kn as it has classes; finer ones fit worse


def estimate_by_accuracy(space: Space) -> KEstimate:
    """Return k* as the number of communities of T_im where those of T_kn match its classes best.

    The coarsest of several equally good resolutions counts. Where classes of the source touch, the
    resolution is theirs.
    """
    implicit = len(space.implicit)
    return KEstimate(matching_communities(space.points, space.known_labels, implicit, space.grain))


def matching_communities(
    points: Points, known_labels: Ids, num_implicit: int, grain: Grain | None = None
) -> int:
    """Return the number of communities of T_im at the resolution that finds T_kn best, 1 or more.

    Args:
        points: Points of T_kn, then of T_im, then of any others, (N, D).
        known_labels: Pseudo-labels of T_kn, (n,).
        num_implicit: Number of images of T_im.
        grain: What sets the resolution instead, if anything does.
    """
    rows = thinned_rows(len(points))
    split, end = np.searchsorted(rows, [len(known_labels), len(known_labels) + num_implicit])
    implicit = np.zeros(len(rows), bool)
    implicit[split:end] = True
    if grain:
        return max(1, _mostly(grain.communities(shared_neighbours(points[rows])), implicit)[1])
    labels = known_labels[rows[:split]]
    best = max(
        _tried(points[rows], implicit, _ENOUGH * len(np.unique(labels)) + 1),
        key=lambda found: clustering_accuracy(found[:split], labels),
    )
    return max(1, _mostly(best, implicit)[1])


def _tried(points: Points, implicit: NDArray[np.bool_], most: float) -> list[Ids]:
    """Return communities from coarse to fine, each (N,)."""
    graph, tried = shared_neighbours(points), []
    for resolution in _RESOLUTIONS:
        tried.append(communities(graph, float(resolution)))
        if _mostly(tried[-1], implicit)[0] > most:
            break
    return tried


def _mostly(found: Ids, implicit: NDArray[np.bool_]) -> tuple[int, int]:
    """Return the numbers of communities that are mostly of other images and mostly of T_im."""
    sizes = np.bincount(found)
    new = np.bincount(found[implicit], minlength=len(sizes))
    whole = sizes >= _MIN_SIZE
    return int((whole & (2 * new < sizes)).sum()), int((whole & (2 * new > sizes)).sum())
