"""Classes that people have named stay classes: a cluster that unites two of them is divided."""

import numpy as np
from scipy.spatial.distance import cdist

from scda.adapt.discovery.kmeans import Points
from scda.adapt.discovery.matching import contingency
from scda.models.index import Ids

_MOST = 0.5  # least share of a class's images that make a cluster its own
_EQUAL = 0.5  # least number of images of a class in a cluster, relative to the largest one
_FEWEST = 2  # images of a class in a cluster


def keep_apart(points: Points, labels: Ids, anchors: Ids) -> Ids:
    """Return clusters of which none is a union of anchored classes, numbered without a gap.

    A cluster that holds most of several anchored classes, in similar numbers, is divided: every
    image goes to the nearest mean of these classes.

    Args:
        points: Points, (N, D).
        labels: Clusters, (N,), 0 and above without a gap.
        anchors: Class that each image is known to have had, (N,), 0 and above; -1 for none.
    """
    had = anchors >= 0
    if not had.any():
        return labels
    divided, count = labels.copy(), int(labels.max()) + 1
    table = contingency(anchors[had], labels[had], (int(anchors.max()) + 1, count))
    is_own = (table >= np.maximum(_FEWEST, _MOST * table.sum(axis=1, keepdims=True))).astype(bool)
    for cluster in range(count):
        of_class = np.where(is_own[:, cluster], table[:, cluster], 0)
        classes = np.flatnonzero((of_class > 0) & (of_class >= _EQUAL * of_class.max()))
        if len(classes) < 2:
            continue
        rows = np.flatnonzero(labels == cluster)
        means = np.stack([points[rows[anchors[rows] == one]].mean(axis=0) for one in classes])
        nearest = cdist(points[rows], means).argmin(axis=1)
        divided[rows] = np.where(nearest == 0, cluster, int(divided.max()) + nearest)
    _, numbered = np.unique(divided, return_inverse=True)
    return np.asarray(numbered, np.int64)
