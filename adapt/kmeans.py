"""k-means by faiss, seeded by greedy k-means++; for one k, or for many at once."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import faiss
import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import kmeans_plusplus

Points = NDArray[np.float32]

SWEEP_STEPS = 20  # Lloyd steps; the curves over k do not change with more
FINAL_STEPS = 50


@dataclass(frozen=True)
class Clustering:
    """One k-means result."""

    labels: NDArray[np.int64]  # (N,)
    centroids: Points  # (M, D)
    sse: float  # sum of squared distances to the centroids


def cluster(
    points: Points, count: int, *, restarts: int, seed: int, spherical: bool = False
) -> Clustering:
    """Return the best of several k-means runs.

    Args:
        points: (N, D).
        count: Clusters, M; at most N.
        restarts: How many seedings are tried.
        seed: Of the first; the others follow it.
        spherical: Centroids have length 1 and the nearest is the one at the smallest angle.
    """
    runs = (
        _lloyd(points, seeds, FINAL_STEPS, spherical=spherical)
        for seeds in (_seeds(points, count, seed + r) for r in range(restarts))
    )
    return min(runs, key=lambda run: run.sse)


def sweep(
    points: Points, counts: Sequence[int], *, restarts: int, seed: int
) -> Iterator[list[Clustering]]:
    """Yield for every count the clusterings of all restarts.

    k-means++ draws its seeds one after the other, so the seeds for the largest count begin with
    seeds for every smaller one: one drawing per restart serves the whole sweep.
    """
    all_seeds = [_seeds(points, max(counts), seed + r) for r in range(restarts)]
    for count in counts:
        yield [_lloyd(points, seeds[:count], SWEEP_STEPS) for seeds in all_seeds]


def _seeds(points: Points, count: int, seed: int) -> Points:
    seeds, _ = kmeans_plusplus(points, count, random_state=seed)
    return np.asarray(seeds, np.float32)


def _lloyd(points: Points, seeds: Points, steps: int, *, spherical: bool = False) -> Clustering:
    kmeans = faiss.Kmeans(
        points.shape[1],
        len(seeds),
        niter=steps,
        spherical=spherical,
        seed=1,  # of how an empty cluster is refilled
        min_points_per_centroid=1,
        max_points_per_centroid=len(points) // len(seeds) + 1,  # else faiss trains on a sample
    )
    kmeans.train(points, init_centroids=seeds)
    labels = kmeans.index.search(points, 1)[1][:, 0]
    centroids = np.asarray(kmeans.centroids, np.float32)
    sse = ((points - centroids[labels]) ** 2).sum(dtype=np.float64)
    return Clustering(labels, centroids, float(sse))
