"""Label propagation: predictions spread over the target's own neighbourhoods.

A classifier judges every image by itself. Images of one class lie together in the backbone's
features, in the target as well as in the source, and so correct each other's mistakes.
"""

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, diags_array
from scipy.sparse.linalg import cg
from scipy.special import softmax

from scda.adapt.discovery.kmeans import Points
from scda.adapt.discovery.neighbours import nearest_others
from scda.models.errors import GateError
from scda.models.index import normalised

_NEIGHBOURS = 5
_SHARPNESS = 3  # power of the cosine, as in Iscen et al.
_SMALLEST = 1e-12  # probability that a logarithm is still taken of


def neighbour_graph(backbone: Points) -> csr_array:
    """Return the symmetric graph that joins every image with its nearest ones, (N, N).

    An edge is the cubed cosine, each image begins five; every row and column is divided by the
    root of its sum.

    Args:
        backbone: (N, D_backbone).

    Source: Zhou et al. 2004, "Learning with Local and Global Consistency";
    Iscen et al. 2019, https://arxiv.org/abs/1904.04717, Eq. 9 and 10.
    """
    points = normalised(backbone)
    found = nearest_others(points, _NEIGHBOURS)
    cosines = np.empty(found.shape, np.float32)
    for number, column in enumerate(found.T):  # all at once would hold every feature vector 5 times
        cosines[:, number] = np.einsum("nd,nd->n", points, points[column])
    edges = np.maximum(cosines.ravel(), 0).astype(np.float64) ** _SHARPNESS
    rows, columns = np.repeat(np.arange(len(points)), found.shape[1]), found.ravel()
    graph = csr_array((edges, (rows, columns)), shape=(len(points), len(points)))
    graph = (graph + graph.T) / 2
    scale = diags_array(1 / np.sqrt(np.maximum(graph.sum(axis=1), _SMALLEST)))
    return csr_array(scale @ graph @ scale)


def propagate(logits: Points, graph: csr_array, reach: float) -> Points:
    """Return logits of the predictions after they have spread over the graph, (N, C).

    Args:
        logits: (N, C) of each image by itself.
        graph: As `neighbourhood` gives it.
        reach: 0 to 1; how much of a prediction comes from neighbours, and theirs, and so on.

    Source: Iscen et al. 2019, Eq. 11.
    """
    alone = softmax(logits.astype(np.float64), axis=1)
    probs = np.maximum(_spread(alone, graph, reach), _SMALLEST)
    return np.asarray(np.log(probs / probs.sum(axis=1, keepdims=True)), np.float32)


def smooth(values: Points, graph: csr_array, reach: float) -> Points:
    """Return each image's value averaged with those around it, (N,)."""
    columns = np.stack([values, np.ones_like(values)], axis=1).astype(np.float64)
    spread = _spread(columns, graph, reach)
    return np.asarray(spread[:, 0] / np.maximum(spread[:, 1], _SMALLEST), np.float32)


def _spread(columns: NDArray[np.float64], graph: csr_array, reach: float) -> NDArray[np.float64]:
    """Solve (I - reach * graph) Z = columns by conjugate gradients."""
    system = diags_array(np.ones(len(columns))) - reach * graph
    solved = np.empty_like(columns)
    for number, column in enumerate(columns.T):
        solved[:, number], unfinished = cg(system, column, x0=column)
        if unfinished:  # below reach 1 the system is well conditioned, and it is done long before
            raise GateError(f"propagation_alpha {reach} did not settle; a smaller one does")
    return solved
