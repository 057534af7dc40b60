"""How many new classes: the communities of the neighbour graph (`--k-method graph`)."""

import networkx
import numpy as np

from scda.adapt.discovery.communities import shared_neighbours, thinned_rows
from scda.adapt.discovery.counting.estimate import KEstimate
from scda.adapt.discovery.kmeans import Points
from scda.adapt.discovery.space import Space
from scda.models.index import Ids

_RESOLUTIONS = np.geomspace(0.1, 2, 14)
_MIN_SIZE = 3  # images; a smaller community is no class


def estimate_by_graph(space: Space) -> KEstimate:
    """Return k* as the number of communities of T_im."""
    return KEstimate(count_communities(space.points, space.known_labels, seed=space.config.seed))


def count_communities(points: Points, known_labels: Ids, *, seed: int) -> int:
    """Return the number of communities of T_im in the neighbour graph, 1 or more.

    Louvain's resolution sets how fine the communities are. The known classes calibrate it: T_kn
    should fall into as many communities as it has classes.

    Args:
        points: Points of T_kn, then of T_im, (N, D).
        known_labels: Pseudo-labels of T_kn, (n,).
        seed: Random seed of the order in which images are moved.

    Source: Blondel et al. 2008, "Fast unfolding of communities in large networks".
    """
    kept = thinned_rows(len(points))
    points, known_labels = points[kept], known_labels[kept[kept < len(known_labels)]]
    graph = networkx.from_scipy_sparse_array(shared_neighbours(points))
    expected = len(np.unique(known_labels))
    counts = []
    for resolution in _RESOLUTIONS:
        counts.append(_counted(graph, float(resolution), len(known_labels), seed))
        if counts[-1][0] > expected:  # finer ones have more
            break
    # The coarsest that fits: finer ones split large classes of T_im first (Office-31, P1).
    _, found = min(counts, key=lambda count: abs(count[0] - expected))
    return max(1, found)


def _counted(graph: networkx.Graph, resolution: float, split: int, seed: int) -> tuple[int, int]:
    """Return the numbers of communities with mostly T_kn and with mostly T_im images."""
    of_known, of_implicit = 0, 0
    for found in networkx.community.louvain_communities(graph, resolution=resolution, seed=seed):
        if len(found) < _MIN_SIZE:
            continue
        known = sum(row < split for row in found)
        of_known += 2 * known >= len(found)
        of_implicit += 2 * known < len(found)
    return of_known, of_implicit
