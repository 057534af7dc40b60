"""Nearest neighbours within one set of images."""

import faiss
import numpy as np

from scda.adapt.discovery.kmeans import Points
from scda.adapt.discovery.large import LARGE, evenly_spaced
from scda.models.index import Ids, build_index, nearest, normalised

NEIGHBOURS = 10  # of an image: in graphs, in walks over the target, and in measures of trust

_OF_CELL = 500  # images on average
_SAMPLED = 40  # images per cell that the cells are fitted to
_STEPS = 8  # Lloyd iterations
_AROUND = 16  # cells in which the neighbours of a cell's images are sought, itself included


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
        _, found = nearest(build_index(points), points, count + 1)
    others = found != np.arange(len(points))[:, None]
    others[others.all(axis=1), -1] = False  # among many duplicates, a row may not find itself
    return np.asarray(found[others].reshape(len(points), found.shape[1] - 1), np.int64)


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
    _, own = faiss.knn(units, centres, 1, metric=faiss.METRIC_INNER_PRODUCT)
    _, around = faiss.knn(centres, centres, min(_AROUND, cells), metric=faiss.METRIC_INNER_PRODUCT)
    order = np.argsort(own[:, 0], kind="stable")
    members = np.split(order, np.cumsum(np.bincount(own[:, 0], minlength=cells))[:-1])
    found = np.empty((len(units), count), np.int64)
    for cell, rows in enumerate(members):
        if not len(rows):
            continue
        near = np.concatenate([members[other] for other in around[cell]])
        if len(near) < count:  # cells of a few images, far from all others
            near = np.arange(len(units))
        _, places = faiss.knn(units[rows], units[near], count, metric=faiss.METRIC_INNER_PRODUCT)
        found[rows] = near[places]
    return found
