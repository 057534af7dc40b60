"""The cheapest cut: a labelling of a graph that follows the evidence and has a short border."""

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, csr_matrix
from scipy.sparse.csgraph import breadth_first_order, maximum_flow

from scda.adapt.discovery.kmeans import Points
from scda.models.index import Ids

_SCALE = 1000  # maximum_flow expects whole numbers


def cheapest_cut(evidence: Points, near: Ids, price: float) -> NDArray[np.bool_]:
    """Return the labelling with the most evidence, less the price of its border; it is exact.

    Args:
        evidence: Evidence of every image, (M,): for True where positive, for False where negative.
        near: Rows of the nearest neighbours, (M, n).
        price: Price of an image whose neighbours, in both directions, all have the other label.

    Source: Greig, Porteous and Seheult 1989, "Exact maximum a posteriori estimation for binary
    images".
    """
    size, start, end = len(evidence), len(evidence), len(evidence) + 1
    border = _border(near, price)
    positive, negative = np.flatnonzero(evidence > 0), np.flatnonzero(evidence < 0)
    rows = np.concatenate([border.row, np.full(len(positive), start), negative])
    columns = np.concatenate([border.col, positive, np.full(len(negative), end)])
    values = np.concatenate([border.data, evidence[positive], -evidence[negative]])
    capacities = np.round(values * _SCALE).astype(np.int32)
    network = csr_matrix((capacities, (rows, columns)), shape=(size + 2,) * 2)
    network.eliminate_zeros()
    left = csr_matrix(network - maximum_flow(network, start, end).flow)
    left.data = (left.data > 0).astype(np.int32)
    left.eliminate_zeros()
    reached = np.zeros(size + 2, bool)
    reached[breadth_first_order(left, start, return_predecessors=False)] = True
    return reached[:size]


def _border(near: Ids, price: float) -> csr_array:
    """Return the price of separating two images, (M, M)."""
    size, count = near.shape
    edges = np.full(size * count, price / max(count, 1) / 2)
    joined = csr_array((edges, (np.repeat(np.arange(size), count), near.ravel())), (size, size))
    return csr_array(joined + joined.T).tocoo()
