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
from scda.adapt.discovery.large import LARGE
from scda.adapt.discovery.neighbours import nearest_others
from scda.adapt.runtime.threads import in_parallel
from scda.models.errors import GateError
from scda.models.index import Ids, normalised

_Columns = NDArray[np.float64] | NDArray[np.float32]

_NEIGHBOURS = 5
_SHARPNESS = 3  # power of the cosine, as in Iscen et al.
_SMALLEST = 1e-12  # lower bound of probabilities before the logarithm, and of divisors
_TOGETHER = 64  # columns of a large target that are solved at once
_EXACT = 1e-5  # of a column's length: the largest residual, as scipy's default
_MOST_STEPS = 1000


def neighbour_graph(backbone: Points, near: Ids | None = None) -> csr_array:
    """Return the normalised adjacency matrix of the five nearest neighbours, (N, N), symmetric.

    The weight of an edge is the cubed cosine; rows and columns are divided by the square root of
    their sums.

    Args:
        backbone: Backbone features, (N, D_backbone).
        near: Rows of the nearest neighbours of every image, nearest first, (N, 5 or more); None to
            seek them.

    Source: Zhou et al. 2004, "Learning with Local and Global Consistency";
    Iscen et al. 2019, https://arxiv.org/abs/1904.04717, Eq. 9 and 10.
    """
    points = normalised(backbone)
    found = nearest_others(points, _NEIGHBOURS) if near is None else near[:, :_NEIGHBOURS]
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
    if len(columns) > LARGE:
        return _solved_together(csr_array(system, dtype=np.float32), columns, alpha)
    start = (1 - alpha) * columns.astype(np.float64)
    solved = np.empty_like(start)
    for number, column in enumerate(start.T):
        solved[:, number], unfinished = cg(system, column, x0=column)
        if unfinished:
            raise _unfinished(alpha)
    return solved


def _solved_together(
    system: csr_array, columns: NDArray[np.floating[Any]], alpha: float
) -> NDArray[np.float32]:
    """Return the same for many rows, (N, C): single precision, many columns at a time.

    A product of the graph with many columns reads the graph once, which is what takes the time.
    """
    solved = np.empty(columns.shape, np.float32)

    def solve(part: slice) -> bool:
        right = np.ascontiguousarray((1 - alpha) * columns[:, part], np.float32)
        return _conjugate_gradients(system, right, solved[:, part])

    starts = range(0, columns.shape[1], _TOGETHER)
    if not all(in_parallel(solve, [slice(start, start + _TOGETHER) for start in starts])):
        raise _unfinished(alpha)
    return solved


def _conjugate_gradients(system: csr_array, right: Points, solved: Points) -> bool:
    """Write the solution of every column, (N, C), and return whether all of them converged.

    Source: Hestenes and Stiefel 1952, "Methods of Conjugate Gradients for Solving Linear Systems".
    """
    solved[:] = right
    residual = right - system @ right
    along = residual.copy()
    left, limit = _squares(residual, residual), _EXACT**2 * _squares(right, right)
    for _ in range(_MOST_STEPS):
        if (left <= limit).all():
            return True
        image = system @ along
        step = left / np.maximum(_squares(along, image), np.finfo(np.float32).tiny)
        solved += step * along
        residual -= step * image
        before, left = left, _squares(residual, residual)
        along *= left / np.maximum(before, np.finfo(np.float32).tiny)
        along += residual
    return False


def _squares(one: Points, other: Points) -> Points:
    return np.asarray(np.einsum("nc,nc->c", one, other))


def _unfinished(alpha: float) -> GateError:
    # For an alpha below 1 the system is well conditioned and converges early.
    return GateError(
        f"label propagation did not converge with propagation_alpha {alpha}; use a smaller one"
    )
