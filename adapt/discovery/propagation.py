"""Label propagation: predictions spread over the graph of nearest target neighbours.

A classifier judges every image by itself. Images of one class lie together in the backbone's
features, in the target as well as in the source, so neighbours correct each other's errors.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, diags_array
from scipy.sparse.linalg import cg
from scipy.special import softmax

from scda.adapt.discovery.kmeans import Points
from scda.adapt.discovery.neighbours import nearest_others
from scda.models.errors import GateError
from scda.models.index import normalised

_Columns = NDArray[np.float64]

_NEIGHBOURS = 5
_SHARPNESS = 3  # power of the cosine, as in Iscen et al.
_SMALLEST = 1e-12  # lower bound of probabilities before the logarithm, and of divisors


def neighbour_graph(backbone: Points) -> csr_array:
    """Return the normalised adjacency matrix of the five nearest neighbours, (N, N), symmetric.

    The weight of an edge is the cubed cosine; rows and columns are divided by the square root of
    their sums.

    Args:
        backbone: Backbone features, (N, D_backbone).

    Source: Zhou et al. 2004, "Learning with Local and Global Consistency";
    Iscen et al. 2019, https://arxiv.org/abs/1904.04717, Eq. 9 and 10.
    """
    points = normalised(backbone)
    found = nearest_others(points, _NEIGHBOURS)
    cosines = np.empty(found.shape, np.float32)
    for number, column in enumerate(found.T):  # by column, to avoid (N, 5, D) in memory
        cosines[:, number] = np.einsum("nd,nd->n", points, points[column])
    edges = np.maximum(cosines.ravel(), 0).astype(np.float64) ** _SHARPNESS
    rows, columns = np.repeat(np.arange(len(points)), found.shape[1]), found.ravel()
    graph = csr_array((edges, (rows, columns)), shape=(len(points), len(points)))
    graph = (graph + graph.T) / 2
    scale = diags_array(1 / np.sqrt(np.maximum(graph.sum(axis=1), _SMALLEST)))
    return csr_array(scale @ graph @ scale)


def propagate(logits: Points, graph: csr_array, alpha: float) -> Points:
    """Return the logits of the predictions after propagation over the graph, (N, C).

    Args:
        logits: Logits of each image by itself, (N, C).
        graph: Graph of `neighbour_graph`, (N, N).
        alpha: Weight of the neighbours against the image's own prediction, 0 to below 1.

    Source: Iscen et al. 2019, Eq. 11.
    """
    alone = softmax(logits.astype(np.float64), axis=1)
    probs = np.maximum(spread(alone, graph, alpha), _SMALLEST)
    return np.asarray(np.log(probs / probs.sum(axis=1, keepdims=True)), np.float32)


def spread(columns: NDArray[np.floating[Any]], graph: csr_array, alpha: float) -> _Columns:
    """Return columns after they have spread to neighbours, to theirs, and so on, (N, C).

    The result is (1 - alpha) (I - alpha * graph)^-1 columns, found by conjugate gradients.

    Args:
        columns: Numbers of each image, (N, C).
        graph: Symmetric graph whose eigenvalues are 1 or less, as `neighbour_graph` returns it.
        alpha: Weight of the neighbours against the image's own numbers, 0 to below 1.

    Raises:
        GateError: If conjugate gradients do not converge.

    Source: Zhou et al. 2004, "Learning with Local and Global Consistency".
    """
    system = diags_array(np.ones(len(columns))) - alpha * graph
    start = (1 - alpha) * columns.astype(np.float64)
    solved = np.empty_like(start)
    for number, column in enumerate(start.T):
        solved[:, number], unfinished = cg(system, column, x0=column)
        if unfinished:  # for an alpha below 1 the system is well conditioned and converges early
            raise GateError(
                f"label propagation did not converge with propagation_alpha {alpha}; use a smaller "
                "one"
            )
    return solved
