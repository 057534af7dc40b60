"""k-means with faiss, seeded by greedy k-means++, for one number of clusters or for many.

A sample of more than 20,000 points is clustered with scikit-learn: where faiss takes the processor
for an older one, its matrix product takes several times as long. Fewer points stay with faiss, so
that published results can be reproduced.
"""

import math
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import faiss
import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import KMeans, kmeans_plusplus
from sklearn.exceptions import ConvergenceWarning
from threadpoolctl import threadpool_limits

from scda.adapt.discovery.large import LARGE, blocks, evenly_spaced
from scda.adapt.runtime.threads import in_parallel

Points = NDArray[np.float32]

STEPS = 60  # largest number of Lloyd iterations; they stop early once no point moves


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

    Of more than 20,000 points, the runs see evenly spaced ones; all points then belong to the
    nearest centroid of the best run.

    Args:
        points: Points, (N, D).
        count: Number of clusters, M; at most N.
        restarts: Number of seedings; the result with the smallest SSE is returned.
        seed: Random seed of the first seeding; each further one adds 1.
        spherical: Whether centroids have length 1 and points are compared by angle.
    """
    sample = points[evenly_spaced(len(points), max(LARGE, count))]

    def run(restart: int) -> Clustering:
        if len(sample) < len(points) and not spherical:
            return _with_scikit_learn(sample, count, seed + restart)
        seeds = _seeds(sample, count, seed + restart)
        return _lloyd(sample, seeds, STEPS, spherical=spherical)

    with warnings.catch_warnings():
        # The sample may have fewer distinct points than clusters.
        warnings.simplefilter("ignore", ConvergenceWarning)
        best = min(in_parallel(run, range(restarts)), key=lambda run: run.sse)
    if len(sample) == len(points):
        return best
    metric = faiss.METRIC_INNER_PRODUCT if spherical else faiss.METRIC_L2
    labels = faiss.knn(points, best.centroids, 1, metric=metric)[1][:, 0]
    sse = sum(_sse(points[rows], best.centroids, labels[rows]) for rows in blocks(len(points)))
    return Clustering(labels, best.centroids, sse)


@dataclass(frozen=True)
class Seedings:
    """Seeds for k-means with any number of clusters up to a largest one.

    k-means++ draws its seeds one after the other, so the first M of a drawing are seeds for M
    clusters. It compares 2 + floor(log M) candidates per seed, so each number of candidates has its
    own drawing, and every count starts from the seeds of scikit-learn's KMeans(M, n_init=1).
    """

    drawings: dict[int, list[Points]]  # number of candidates → seeds (., D) of each restart

    def first(self, count: int) -> list[Points]:
        """Return the seeds of every restart, each (count, D)."""
        return [seeds[:count] for seeds in self.drawings[_candidates(count)]]


def seedings(points: Points, counts: Sequence[int], *, restarts: int, seed: int) -> Seedings:
    """Return the seeds for every count, and for smaller ones with the same number of candidates.

    Args:
        points: Points, (N, D).
        counts: Numbers of clusters in rising order; at most N.
        restarts: Number of drawings for each number of candidates.
        seed: Random seed of the first drawing; each further one adds 1.
    """
    largest = {_candidates(count): count for count in counts}
    return Seedings(
        {
            candidates: [_seeds(points, count, seed + r) for r in range(restarts)]
            for candidates, count in largest.items()
        }
    )


def clusterings(points: Points, seeds: Seedings, count: int) -> list[Clustering]:
    """Return the clusterings of all restarts into `count` clusters."""
    return [_lloyd(points, of_restart, STEPS) for of_restart in seeds.first(count)]


def sweep(
    points: Points, counts: Sequence[int], *, restarts: int, seed: int
) -> Iterator[list[Clustering]]:
    """Yield the clusterings of all restarts for each count, in rising order."""
    seeds = seedings(points, counts, restarts=restarts, seed=seed)
    for count in counts:
        yield clusterings(points, seeds, count)


def _candidates(count: int) -> int:
    return 2 + int(math.log(count))


def _seeds(points: Points, count: int, seed: int) -> Points:
    # float64 would halve the time, but would draw other seeds than KMeans does on float32.
    seeds, _ = kmeans_plusplus(points, count, random_state=seed, n_local_trials=_candidates(count))
    return np.asarray(seeds, np.float32)


def _lloyd(points: Points, seeds: Points, steps: int, *, spherical: bool = False) -> Clustering:
    kmeans = faiss.Kmeans(
        points.shape[1],
        len(seeds),
        niter=steps,
        spherical=spherical,
        seed=1,  # random seed for refilling empty clusters
        min_points_per_centroid=1,
        max_points_per_centroid=len(points) // len(seeds) + 1,  # else faiss subsamples
    )
    kmeans.train(points, init_centroids=seeds)
    labels = kmeans.index.search(points, 1)[1][:, 0]
    centroids = np.asarray(kmeans.centroids, np.float32)
    return Clustering(labels, centroids, _sse(points, centroids, labels))


def _with_scikit_learn(points: Points, count: int, seed: int) -> Clustering:
    with threadpool_limits(1):  # the sums of several threads differ with their number
        found = KMeans(count, n_init=1, max_iter=STEPS, tol=0, random_state=seed).fit(points)
    return Clustering(
        np.asarray(found.labels_, np.int64), found.cluster_centers_, float(found.inertia_)
    )


def _sse(points: Points, centroids: Points, labels: NDArray[np.int64]) -> float:
    return float(((points - centroids[labels]) ** 2).sum(dtype=np.float64))
