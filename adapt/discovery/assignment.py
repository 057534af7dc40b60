"""Pseudo-labels of T_im: which image belongs to which of the k* new classes."""

import numpy as np
from scipy.spatial.distance import cdist

from scda.adapt.discovery.kmeans import cluster
from scda.adapt.discovery.matching import contingency, match
from scda.adapt.discovery.space import Space
from scda.models.index import Ids

_FINAL_EXTRA_RESTARTS = 1


def assign(space: Space, k_star: int) -> Ids:
    """Return pseudo-labels of T_im, (len(space.implicit),), 0 and above without a gap.

    `config.assignment` chooses between a k-means of T_im alone (`separate`) and the clusters of
    T_kn and T_im together (`joint`). There are fewer than `k_star` labels where a cluster would be
    empty.

    Source: SCDA, Algorithm 1, lines 8 and 9.
    """
    clusters = space.num_known + k_star
    joint = space.config.assignment == "joint" and clusters <= len(space.points)
    labels = _joint(space, clusters) if joint else _separate(space, k_star)
    _, numbered = np.unique(labels, return_inverse=True)
    return np.asarray(numbered, np.int64)


def _separate(space: Space, k_star: int) -> Ids:
    restarts = space.config.restarts + _FINAL_EXTRA_RESTARTS
    k_star = min(k_star, len(np.unique(space.implicit, axis=0)))
    return cluster(space.implicit, k_star, restarts=restarts, seed=space.config.seed).labels


def _joint(space: Space, clusters: int) -> Ids:
    """Assign T_im to the clusters of the joint clustering that stand for no known class."""
    config, split = space.config, len(space.known_labels)
    joint = cluster(space.points, clusters, restarts=config.restarts, seed=config.seed)
    table = contingency(joint.labels[:split], space.known_labels, (clusters, space.num_known))
    # A known class without images takes the cluster with the fewest images of T_im.
    new = np.bincount(joint.labels[split:], minlength=clusters)
    of_known = list(match(table - new[:, None] / (len(space.points) + 1)))
    free = np.delete(joint.centroids, of_known, axis=0)
    return np.asarray(cdist(space.implicit, free).argmin(axis=1), np.int64)
