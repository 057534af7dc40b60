"""Communities of images that share their nearest neighbours."""

import numpy as np
from scipy.sparse import csr_array, csr_matrix
from sknetwork.clustering import Louvain

from scda.adapt.discovery.kmeans import Points
from scda.adapt.discovery.large import evenly_spaced
from scda.adapt.discovery.neighbours import NEIGHBOURS, nearest_others
from scda.models.index import Ids

_MAX_IMAGES = 10_000  # a larger set is thinned out, which gives nearly the same in seconds
_RESOLUTIONS = (0.7, 1.0, 1.5, 2.0, 3.0, 4.5, 7.0, 10.0, 15.0, 22.0)


def thinned_rows(count: int) -> Ids:
    """Return at most 10,000 of `count` rows, evenly spaced."""
    return evenly_spaced(count, _MAX_IMAGES)


def shared_neighbours(points: Points) -> csr_array:
    """Return the graph of nearest neighbours, (N, N); an edge is the share they have in common.

    Args:
        points: (N, D).

    Source: Jarvis and Patrick 1973, "Clustering using a similarity measure based on shared near
    neighbors"; an edge is the Jaccard index of both ends' neighbours.
    """
    itself = np.arange(len(points))[:, None]  # an image counts among its own neighbours
    found = np.hstack([itself, nearest_others(points, NEIGHBOURS)])
    rows = np.repeat(np.arange(len(points)), found.shape[1])
    near = csr_array((np.ones(len(rows)), (rows, found.ravel())), shape=(len(points),) * 2)
    both = csr_array(near @ near.T)
    joined = both.multiply(near.maximum(near.T)).tocoo()
    of_either = 2 * found.shape[1] - joined.data
    weights = joined.data / of_either
    apart = joined.row != joined.col
    edges = (weights[apart], (joined.row[apart], joined.col[apart]))
    return csr_array(edges, shape=(len(points),) * 2)


def communities(graph: csr_array, resolution: float, *, seed: int = 0) -> Ids:
    """Return the community of every image, (N,), 0 and above without a gap.

    Args:
        graph: Symmetric graph, (N, N).
        resolution: Fineness of the communities; a larger one gives more of them.
        seed: Random seed of the order in which images are moved.

    Source: Blondel et al. 2008, "Fast unfolding of communities in large networks".
    """
    if not graph.nnz:
        return np.arange(graph.shape[0])
    found = Louvain(resolution=resolution, random_state=seed).fit_predict(csr_matrix(graph))
    return np.asarray(np.unique(found, return_inverse=True)[1], np.int64)


def coarsest_of_at_least(graph: csr_array, count: int) -> Ids:
    """Return the coarsest communities that are `count` or more, or else the finest, (N,)."""
    for resolution in _RESOLUTIONS:
        found = communities(graph, resolution)
        if found.max() + 1 >= count:
            break
    return found
