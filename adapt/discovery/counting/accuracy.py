"""How many new classes: the communities at the resolution that finds T_kn's classes best."""

import numpy as np

from scda.adapt.discovery.communities import communities, shared_neighbours, thinned_rows
from scda.adapt.discovery.counting.estimate import KEstimate
from scda.adapt.discovery.kmeans import Points
from scda.adapt.discovery.matching import clustering_accuracy
from scda.adapt.discovery.space import Space
from scda.models.index import Ids

_RESOLUTIONS = np.geomspace(0.1, 4, 16)
_MIN_SIZE = 3  # images; a smaller community is no class
_ENOUGH = 1.6  # times as many communities of T_kn as it has classes; finer ones fit worse


def estimate_by_accuracy(space: Space) -> KEstimate:
    """Return k* as the number of communities of T_im where those of T_kn match its classes best.

    The coarsest of several equally good resolutions counts.
    """
    rows = thinned_rows(len(space.points))
    known_labels = space.known_labels[rows[rows < len(space.known_labels)]]
    split = len(known_labels)
    best = max(
        _tried(space.points[rows], known_labels),
        key=lambda found: clustering_accuracy(found[:split], known_labels),
    )
    return KEstimate(max(1, _mostly(best, split)[1]))


def _tried(points: Points, known_labels: Ids) -> list[Ids]:
    """Return communities from coarse to fine, each (N,)."""
    graph, tried = shared_neighbours(points), []
    most = _ENOUGH * len(np.unique(known_labels)) + 1
    for resolution in _RESOLUTIONS:
        tried.append(communities(graph, float(resolution)))
        if _mostly(tried[-1], len(known_labels))[0] > most:
            break
    return tried


def _mostly(found: Ids, split: int) -> tuple[int, int]:
    """Return the numbers of communities that are mostly of T_kn and mostly of T_im."""
    sizes = np.bincount(found)
    known = np.bincount(found[:split], minlength=len(sizes))
    whole = sizes >= _MIN_SIZE
    return int((whole & (2 * known > sizes)).sum()), int((whole & (2 * known < sizes)).sum())
