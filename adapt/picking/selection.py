"""Choose images that are uncertain and differ from each other."""

import numpy as np
from numpy.typing import NDArray

from scda.models.index import Features, Ids, normalised

_RESTARTS = 3
_LEAST = 1e-6  # weight of an image that is certain: among certain ones the choice is by place


def choose(features: Features, entropies: NDArray[np.float32], count: int, *, seed: int) -> Ids:
    """Return the rows of the images whose label would help most, the most helpful first.

    k-means divides the images into groups, where an image counts as much as it is uncertain; the
    image next to each centre is chosen. Groups with more uncertainty come first.

    Args:
        features: Features of the model, (N, D).
        entropies: Entropy of each prediction in nats, (N,).
        count: Number of images; all if there are fewer different ones.
        seed: Seed of k-means.

    Source: Prabhu et al. 2021, "Active Domain Adaptation via Clustering Uncertainty-weighted
    Embeddings" (CLUE), https://arxiv.org/abs/2010.08666
    """
    from sklearn.cluster import KMeans

    points = normalised(features)
    first = np.unique(points, axis=0, return_index=True)[1]
    if count >= len(first):
        return np.asarray(first[np.argsort(-entropies[first], kind="stable")], np.int64)
    weights = np.maximum(entropies.astype(np.float64), _LEAST)
    groups = KMeans(count, n_init=_RESTARTS, random_state=seed).fit(points, sample_weight=weights)
    rows, sums = [], []
    for number, centre in enumerate(groups.cluster_centers_):
        members = np.flatnonzero(groups.labels_ == number)
        if len(members):
            rows.append(members[((points[members] - centre) ** 2).sum(axis=1).argmin()])
            sums.append(weights[members].sum())
    return np.asarray(rows, np.int64)[np.argsort(-np.asarray(sums), kind="stable")]
