"""k-means by faiss, seeded by greedy k-means++; for one k, or for many at once."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import faiss
import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import kmeans_plusplus

Points = NDArray[np.float32]

STEPS = 60  # of Lloyd at most; faiss stops where nothing moves any more


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
        _lloyd(points, seeds, STEPS, spherical=spherical)
        for seeds in (_seeds(points, count, seed + r) for r in range(restarts))
    )
    return min(runs, key=lambda run: run.sse)


@dataclass(frozen=True)
class Seedings:
    """Seeds for k-means with any number of clusters up to a largest one.

    k-means++ draws its seeds one after the other, so the first M of a drawing are seeds for M
    clusters. It compares 2 + floor(log M) candidates for each, so every value of that has a drawing
    of its own: each count starts as scikit-learn's KMeans(M, n_init=1) with the same seed does.
    """

    drawings: dict[int, list[Points]]  # by number of candidates; one of each restart, (., D)

    def first(self, count: int) -> list[Points]:
        """Return the seeds of every restart, each (count, D)."""
        return [seeds[:count] for seeds in self.drawings[_candidates(count)]]


def seedings(points: Points, counts: Sequence[int], *, restarts: int, seed: int) -> Seedings:
    """Return the seeds for every count, and for those below it with as many candidates.

    Args:
        points: (N, D).
        counts: Clusters, rising; at most N.
        restarts: How many drawings there are of each kind.
        seed: Of the first; the others follow it.
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
    """Yield for every count, rising, the clusterings of all restarts."""
    seeds = seedings(points, counts, restarts=restarts, seed=seed)
    for count in counts:
        yield clusterings(points, seeds, count)


def _candidates(count: int) -> int:
    return 2 + int(math.log(count))


def _seeds(points: Points, count: int, seed: int) -> Points:
    # float64 would halve the time, but draws other seeds than KMeans does on float32.
    seeds, _ = kmeans_plusplus(points, count, random_state=seed, n_local_trials=_candidates(count))
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
