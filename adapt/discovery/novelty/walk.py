"""A random walk from image to image of the target: what images find where they lead."""

import numpy as np
from scipy.sparse import csr_array, diags_array

from scda.adapt.discovery.kmeans import Points
from scda.adapt.discovery.propagation import spread
from scda.models.index import Ids

_SMALLEST = 1e-12


def walk(columns: Points, near: Ids, reach: float) -> Points:
    """Return what a random walk from every image finds on average where it ends, (M, C).

    Before every step the walk goes on with probability `reach`. It takes each of the image's
    neighbours, and each image that it is a neighbour of, with the same probability.

    Args:
        columns: Numbers of each image, (M, C).
        near: Rows of the nearest neighbours, (M, n).
        reach: Probability of another step, 0 to below 1.
    """
    size, count = near.shape
    edges = np.ones(size * count)
    joined = csr_array((edges, (np.repeat(np.arange(size), count), near.ravel())), (size, size))
    joined = csr_array(joined + joined.T)
    root = np.sqrt(np.maximum(joined.sum(axis=1), _SMALLEST))[:, None]
    scale = diags_array(1 / root[:, 0])
    # Steps are divided by the number of an image's neighbours, which is not symmetric; scaled by
    # the roots of both ends it is.
    found = spread(columns * root, csr_array(scale @ joined @ scale), reach) / root
    return np.asarray(found, np.float32)
