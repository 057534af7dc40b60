"""Nearest neighbours within one set of images."""

import numpy as np

from scda.adapt.discovery.kmeans import Points
from scda.models.index import Ids, build_index, nearest

NEIGHBOURS = 10  # of an image: in graphs, in walks over the target, and in measures of trust


def nearest_others(points: Points, count: int) -> Ids:
    """Return the rows nearest to each row by cosine, itself excluded, nearest first.

    A row is excluded by its number: among duplicates it need not be the first that is found.

    Args:
        points: Features, (N, D).
        count: Number of neighbours of each row.

    Returns:
        Row numbers, (N, min(count, N - 1)); fewer columns where an approximate index finds fewer.
    """
    _, found = nearest(build_index(points), points, count + 1)
    others = found != np.arange(len(points))[:, None]
    others[others.all(axis=1), -1] = False  # among many duplicates, a row may not find itself
    return np.asarray(found[others].reshape(len(points), found.shape[1] - 1), np.int64)
