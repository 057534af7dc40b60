"""How many new classes: the graph's answer, beside Algorithm 1's (`--k-method graph`)."""

import networkx
import numpy as np
from scipy.sparse import csr_array

from scda.adapt.discovery.kmeans import Points
from scda.models.index import Ids, build_index, nearest

_NEIGHBOURS = 10
_RESOLUTIONS = np.geomspace(0.1, 2, 14)
_LEAST = 3  # images; a smaller community is no class
_MOST = 10_000  # images; of more, evenly chosen ones say as much, in seconds


def count_communities(points: Points, known_labels: Ids, *, seed: int) -> int:
    """Return how many groups of T_im the neighbourhood graph has, 1 or more.

    Louvain's resolution says how fine the groups are, and images of known classes say how fine is
    right: it is set so that T_kn falls into as many groups as it has classes.

    Args:
        points: (N, D), T_kn first.
        known_labels: (n,) pseudo-labels of T_kn.
        seed: Of the order that images are moved in.

    Source: Blondel et al. 2008, "Fast unfolding of communities in large networks".
    """
    kept = np.linspace(0, len(points) - 1, min(len(points), _MOST)).astype(np.int64)
    points, known_labels = points[kept], known_labels[kept[kept < len(known_labels)]]
    graph = networkx.from_scipy_sparse_array(_shared_neighbours(points))
    wanted = len(np.unique(known_labels))
    counts = []
    for resolution in _RESOLUTIONS:
        counts.append(_counted(graph, float(resolution), len(known_labels), seed))
        if counts[-1][0] > wanted:  # finer ones have more
            break
    # The coarsest that fits: finer ones split large classes of T_im first (Office-31, P1).
    _, found = min(counts, key=lambda count: abs(count[0] - wanted))
    return max(1, found)


def _counted(graph: networkx.Graph, resolution: float, split: int, seed: int) -> tuple[int, int]:
    """Return how many communities are mostly of T_kn, and how many mostly of T_im."""
    of_known, of_implicit = 0, 0
    for found in networkx.community.louvain_communities(graph, resolution=resolution, seed=seed):
        if len(found) < _LEAST:
            continue
        known = sum(row < split for row in found)
        of_known += 2 * known >= len(found)
        of_implicit += 2 * known < len(found)
    return of_known, of_implicit


def _shared_neighbours(points: Points) -> csr_array:
    """Return the graph of the nearest neighbours, an edge being the share that both ends have."""
    _, found = nearest(build_index(points), points, min(_NEIGHBOURS + 1, len(points)))
    rows = np.repeat(np.arange(len(points)), found.shape[1])
    near = csr_array((np.ones(len(rows)), (rows, found.ravel())), shape=(len(points),) * 2)
    both = csr_array(near @ near.T)
    joined = both.multiply(near.maximum(near.T)).tocoo()
    of_either = 2 * found.shape[1] - joined.data
    weights = joined.data / of_either
    apart = joined.row != joined.col
    edges = (weights[apart], (joined.row[apart], joined.col[apart]))
    return csr_array(edges, shape=(len(points),) * 2)
