"""Compare speed and results of the sweep over k with those of a plain sweep.

    python -m benchmarks.ksweep [--seeds N] [--parts plain large study]

The data are Gaussian mixtures of equally large classes, with noise N(0, I) and class centres
N(0, I) in 64 dimensions: two centres are on average sqrt(128) = 11.3 standard deviations of the
noise apart, so all classes are separated. Both sweeps run on one thread, as in training. The plain
sweep is scikit-learn's KMeans at every k; each of its seeds takes one to two minutes, everything
else about four.

The last lines compare each figure with its bound; the exit code is 0 only if all pass.
"""

import argparse
import math
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations

import faiss
import numpy as np
from sklearn.cluster import KMeans
from threadpoolctl import threadpool_limits

from benchmarks.speed.answers import Answer, exit_code
from scda.adapt.config import TrainConfig
from scda.adapt.discovery.counting.estimate import Curve
from scda.adapt.discovery.counting.sweep import elbow, sweep_curve
from scda.adapt.discovery.kmeans import Points
from scda.adapt.discovery.matching import clustering_accuracy
from scda.adapt.discovery.space import cluster_space
from scda.models.index import Ids

RESTARTS = 4
SEED_STEP = 100  # restart r of a sweep has the seed plus r, so that no two sweeps share a seed


@dataclass(frozen=True)
class Mixture:
    """Points with the known classes first."""

    points: Points  # (N, D)
    known_labels: Ids  # labels of the first points
    num_known: int
    num_new: int


@dataclass(frozen=True)
class Sweep:
    """The result and the duration of one sweep over k."""

    curve: Curve
    seconds: float

    def k_star(self, num_known: int) -> int:
        """Number of new classes, computed as in discovery."""
        return math.ceil((self.curve.k_accuracy + self.curve.k_elbow) / 2) - num_known


def mixture(num_known: int, num_new: int, images: int, *, width: int = 64) -> Mixture:
    """Return a mixture, whose centres are equally far apart for any width."""
    rng = np.random.default_rng(0)
    classes = num_known + num_new
    labels = np.sort(np.arange(images) % classes)
    centres = rng.normal(0, math.sqrt(64 / width), (classes, width))
    points = (centres[labels] + rng.normal(size=(images, width))).astype(np.float32)
    return Mixture(points, labels[labels < num_known], num_known, num_new)


def fast_sweep(data: Mixture, *, k_max: int, seed: int, restarts: int = RESTARTS) -> Sweep:
    """Return the sweep of scda."""
    config = TrainConfig(restarts=restarts, k_max=k_max, seed=seed)
    start = time.perf_counter()
    curve = sweep_curve(data.points, data.known_labels, num_known=data.num_known, config=config)
    return Sweep(curve, time.perf_counter() - start)


def plain_sweep(data: Mixture, *, k_max: int, seed: int) -> Sweep:
    """Return the sweep with scikit-learn: every k and restart from scratch, to convergence."""
    start = time.perf_counter()
    counts = list(range(data.num_known + 1, data.num_known + k_max + 1))
    best = [_plain_best(data.points, count, seed) for count in counts]
    known = len(data.known_labels)
    accuracy = [
        clustering_accuracy(run.labels_[:known].astype(np.int64), data.known_labels) for run in best
    ]
    sse = [float(run.inertia_) for run in best]
    k_accuracy = counts[int(np.argmax(accuracy))]
    curve = Curve(counts, sse, accuracy, k_accuracy, [], elbow(counts, sse))
    return Sweep(curve, time.perf_counter() - start)


def _plain_best(points: Points, count: int, seed: int) -> KMeans:
    # One KMeans per restart instead of n_init=4, so that both sweeps start from the same seeds.
    runs = [KMeans(count, n_init=1, random_state=seed + r).fit(points) for r in range(RESTARTS)]
    return min(runs, key=lambda run: run.inertia_)


def curve_difference(fast: Curve, plain: Curve) -> float:
    """Return the largest relative difference of SSE and CA over all k that both sweeps tried."""
    rows = [plain.k.index(k) for k in fast.k]
    pairs = ((fast.sse, plain.sse), (fast.accuracy, plain.accuracy))
    return max(
        float(np.max(np.abs(np.array(ours) / np.array(theirs)[rows] - 1))) for ours, theirs in pairs
    )


def against_plain(seeds: int) -> Iterator[Answer]:
    """Yield speed and agreement on 65 classes, 25 of them known, 4,000 points, k to 145."""
    data = mixture(25, 40, 4000)
    pairs: list[tuple[Sweep, Sweep]] = []
    print("| seed | fast: seconds, values of k, k_accuracy, k_elbow, k* | plain: the same |")
    print("|---|---|---|")
    for seed in range(0, seeds * SEED_STEP, SEED_STEP):
        pair = (
            fast_sweep(data, k_max=120, seed=seed),
            plain_sweep(data, k_max=120, seed=seed),
        )
        pairs.append(pair)
        print(f"| {seed} | {' | '.join(_row(sweep, 25) for sweep in pair)} |", flush=True)
    fast_k, plain_k = ([pair[side].k_star(25) for pair in pairs] for side in (0, 1))
    own = [abs(one - two) for one, two in combinations(plain_k, 2)]
    differences = [abs(one - two) for one, two in zip(fast_k, plain_k, strict=True)]
    seconds = [sum(pair[side].seconds for pair in pairs) for side in (0, 1)]
    yield Answer("sweep_speedup", seconds[1] / seconds[0], 10, at_least=True)
    yield Answer("k_difference", float(np.mean(differences)), float(np.mean(own or [0])) + 1)
    worst = max(curve_difference(fast.curve, plain.curve) for fast, plain in pairs)
    yield Answer("curve_difference", worst, 0.01)


def _row(sweep: Sweep, num_known: int) -> str:
    curve = sweep.curve
    found = f"{curve.k_accuracy}, {curve.k_elbow}, {sweep.k_star(num_known)}"
    return f"{sweep.seconds:.1f}, {len(curve.k)}, {found}"


def large(seeds: int) -> Iterator[Answer]:
    """Yield the time for 362 classes, 65 of them known, 20,000 points, k to 715."""
    del seeds  # one is enough for a time
    data = mixture(65, 297, 20_000)
    cpu = time.process_time()
    sweep = fast_sweep(data, k_max=650, seed=0)
    cpu = time.process_time() - cpu  # tells a busy machine from a slow sweep
    print(f"\nlarge: {_row(sweep, 65)} of 297; {cpu:.1f} s of processor time")
    yield Answer("large_seconds", sweep.seconds, 120)


def study(seeds: int) -> Iterator[Answer]:
    """Print the cost and the benefit of PCA and of restarts, on 512-dimensional features."""
    wide = mixture(25, 40, 4000, width=512)
    everything = np.arange(len(wide.points))
    print("\n| PCA | restarts | seconds | k* | mean error of k* |\n|---|---|---|---|---|")
    for pca in (64, 0):
        config = TrainConfig(cluster_space="features", pca=pca)
        start = time.perf_counter()
        points = cluster_space(wide.points, wide.points, everything, config)
        reducing = time.perf_counter() - start
        data = Mixture(points, wide.known_labels, wide.num_known, wide.num_new)
        for restarts in (1, 4, 10):
            _study_row(data, f"{pca or 'off'}", restarts, reducing, min(seeds, 3))
    yield from ()


def _study_row(data: Mixture, pca: str, restarts: int, reducing: float, seeds: int) -> None:
    sweeps = [
        fast_sweep(data, k_max=120, seed=seed * SEED_STEP, restarts=restarts)
        for seed in range(seeds)
    ]
    found = [sweep.k_star(data.num_known) for sweep in sweeps]
    error = np.mean([abs(k - data.num_new) for k in found])
    seconds = reducing + np.mean([sweep.seconds for sweep in sweeps])
    stars = ", ".join(map(str, found))
    print(f"| {pca} | {restarts} | {seconds:.1f} | {stars} | {error:.1f} |", flush=True)


PARTS = {"plain": against_plain, "large": large, "study": study}


def main() -> int:
    """Run the chosen parts; return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--seeds", type=int, default=10, help="number of seeds of the plain sweep (default 10)"
    )
    parser.add_argument("--parts", nargs="+", choices=list(PARTS), default=list(PARTS))
    arguments = parser.parse_args()
    faiss.omp_set_num_threads(1)
    with threadpool_limits(1):
        answers = [a for part in arguments.parts for a in PARTS[part](arguments.seeds)]
    return exit_code(answers)


if __name__ == "__main__":
    sys.exit(main())
