"""Nearest neighbours within one set of images."""

from collections.abc import Callable

import faiss
import numpy as np
import torch

from scda.adapt.discovery.kmeans import Points
from scda.adapt.discovery.large import LARGE, evenly_spaced
from scda.adapt.runtime.threads import in_parallel
from scda.models.index import Ids, build_index, nearest, normalised

NEIGHBOURS = 10  # of an image: in graphs, in walks over the target, and in measures of trust

_OF_CELL = 500  # images on average
_SAMPLED = 40  # images per cell that the cells are fitted to
_STEPS = 8  # Lloyd iterations
_AROUND = 16  # cells in which the neighbours of a cell's images are sought, itself included
_ROWS = 512  # points that are compared with others at once, at most
_PRODUCTS = 2**25  # of these with the others, at most: 128 MiB
_FAISS_ROWS = 4096  # that faiss compares at once: other pieces would round otherwise


def nearest_others(points: Points, count: int) -> Ids:
    """Return the rows nearest to each row by cosine, itself excluded, nearest first.

    Among more than 20,000 images they are sought near each image alone: a few are missed.
    A row is excluded by its number: among duplicates it need not be the first that is found.

    Args:
        points: Features, (N, D).
        count: Number of neighbours of each row.

    Returns:
        Row numbers, (N, min(count, N - 1)).
    """
    if len(points) > LARGE:
        found = _nearest_in_cells(normalised(points), count + 1)
    else:
        found = nearest_among(points, points, count + 1)
    others = found != np.arange(len(points))[:, None]
    others[others.all(axis=1), -1] = False  # among many duplicates, a row may not find itself
    return np.asarray(found[others].reshape(len(points), found.shape[1] - 1), np.int64)


def nearest_among(points: Points, others: Points, count: int) -> Ids:
    """Return the rows of other points nearest to each point by cosine, nearest first, (N, count).

    Args:
        points: (N, D).
        others: (M, D).
        count: Number of rows, at most M.
    """
    is_small = len(points) <= LARGE
    rows = _FAISS_ROWS if is_small else max(1, min(_ROWS, _PRODUCTS // len(others)))
    return np.concatenate(in_parallel(_search(points, others, count), _parts(len(points), rows)))


def _search(points: Points, others: Points, count: int) -> Callable[[slice], Ids]:
    """Return the function that searches for a part of the points."""
    if len(points) <= LARGE:
        index = build_index(others)
        return lambda rows: nearest(index, points[rows], count)[1]
    units = normalised(others)
    return lambda rows: _most_similar(normalised(points[rows]), units, count)


def _parts(count: int, rows: int) -> list[slice]:
    """Return slices of so many rows; the last one is longer, for faiss compares a few otherwise."""
    starts = [rows * number for number in range(max(1, count // rows))]
    return [slice(*ends) for ends in zip(starts, [*starts[1:], count], strict=True)]


def _nearest_in_cells(units: Points, count: int) -> Ids:
    """Return the rows nearest to each row, itself included, among those of the cells around.

    The images of a cell share the cells they are compared with, so that the comparison is a product
    of matrices; the work grows with N, where comparing all images grows with its square.

    Args:
        units: Points of length 1, (N, D).
        count: Number of neighbours, at most N.
    """
    cells = max(1, len(units) // _OF_CELL)
    kmeans = faiss.Kmeans(
        units.shape[1],
        cells,
        niter=_STEPS,
        spherical=True,
        seed=1,
        max_points_per_centroid=_SAMPLED,
    )
    kmeans.train(units[evenly_spaced(len(units), _SAMPLED * cells)])
    centres = np.asarray(kmeans.centroids, np.float32)
    own = nearest_among(units, centres, 1)[:, 0]
    _, around = faiss.knn(centres, centres, min(_AROUND, cells), metric=faiss.METRIC_INNER_PRODUCT)
    order = np.argsort(own, kind="stable")
    members = np.split(order, np.cumsum(np.bincount(own, minlength=cells))[:-1])
    found = np.empty((len(units), count), np.int64)

    def search(cell: int) -> None:
        near = np.concatenate([members[other] for other in around[cell]])
        if len(near) < count:  # cells of a few images, far from all others
            near = np.arange(len(units))
        others = units[near]
        for start in range(0, len(members[cell]), _ROWS):
            rows = members[cell][start : start + _ROWS]
            found[rows] = near[_most_similar(units[rows], others, count)]

    in_parallel(search, [cell for cell, rows in enumerate(members) if len(rows)])
    return found


def _most_similar(points: Points, others: Points, count: int) -> Ids:
    """Return the rows of the largest products with each point, the largest first, (N, count).

    The product is NumPy's: where the library that comes with faiss does not know the processor, it
    takes five times as long.
    """
    products = torch.from_numpy(points @ others.T)
    return np.asarray(products.topk(count, dim=1).indices.numpy(), np.int64)
