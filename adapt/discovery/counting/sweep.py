"""How many clusters: the sweep over k with its two criteria, the middle of Algorithm 1."""

import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from kneed import KneeLocator

from scda.adapt.config import TrainConfig
from scda.adapt.discovery.counting.estimate import Curve, KEstimate
from scda.adapt.discovery.counting.sweep_search import search
from scda.adapt.discovery.kmeans import Points, clusterings, seedings
from scda.adapt.discovery.matching import clustering_accuracy
from scda.adapt.discovery.space import Space
from scda.models.index import Ids

log = logging.getLogger(__name__)


def estimate_by_sweep(space: Space) -> KEstimate:
    """Return k* of Algorithm 1: the mean k of both criteria, less the known classes."""
    config, num_known = space.config, space.num_known
    curve = sweep_curve(space.points, space.known_labels, num_known=num_known, config=config)
    k = max(1, k_hat(curve) - num_known)
    return KEstimate(k, at_bound=k >= config.k_max, curve=curve)


def k_hat(curve: Curve) -> int:
    """Return the mean k of both criteria, rounded up (Algorithm 1, line 7)."""
    return math.ceil((curve.k_accuracy + curve.k_elbow) / 2)


def sweep_curve(points: Points, known_labels: Ids, *, num_known: int, config: TrainConfig) -> Curve:
    """Return the curves over k and the k that each criterion picks.

    Args:
        points: Points of T_kn, then of T_im, (N, D).
        known_labels: Pseudo-labels of T_kn, (n,).
        num_known: Number of known classes, K.
        config: Configuration of the run.

    Source: SCDA, Algorithm 1 lines 3 to 7, Eq. 8.
    """
    most = min(num_known + config.k_max, len(np.unique(points, axis=0)) // 2)
    counts = list(range(num_known + 1, max(most, num_known + 1) + 1))
    counts = [count for count in counts if count <= len(points)] or [len(points)]
    seeds = seedings(points, counts, restarts=config.restarts, seed=config.seed)

    def score(count: int) -> _Scores:
        runs = clusterings(points, seeds, count)
        of_known = [run.labels[: len(known_labels)] for run in runs]
        accuracy = [clustering_accuracy(labels, known_labels) for labels in of_known]
        return _Scores([run.sse for run in runs], accuracy)

    def picks(tried: dict[int, _Scores]) -> list[int]:
        curve = _curve(tried)
        return [curve.k_accuracy, curve.k_elbow]

    return _curve(search(counts, score, picks))


def elbow(counts: Sequence[int], sse: Sequence[float]) -> int:
    """Return the k at the bend of the SSE curve: the maximum of Kneedle's difference curve.

    kneed's own knee is the first local maximum, which is far too low for many classes. A curve of
    three points or fewer, or a flat one, has no bend: the middle k is returned and logged.

    Source: Satopaa et al. 2011, "Finding a Kneedle in a Haystack" (choice 12).
    """
    middle = counts[len(counts) // 2]
    if len(counts) <= 3 or not sse[0] > sse[-1]:
        log.warning(
            "the SSE curve over %d values of k has no bend; took k = %d", len(counts), middle
        )
        return middle
    locator = KneeLocator(counts, sse, curve="convex", direction="decreasing")
    return int(counts[int(np.argmax(locator.y_difference))])


@dataclass(frozen=True)
class _Scores:
    """The scores of one k, restart by restart."""

    sse: list[float]
    accuracy: list[float]


def _curve(tried: dict[int, _Scores]) -> Curve:
    counts = list(tried)
    best = [int(np.argmin(scores.sse)) for scores in tried.values()]
    sse = [scores.sse[run] for scores, run in zip(tried.values(), best, strict=True)]
    accuracy = [scores.accuracy[run] for scores, run in zip(tried.values(), best, strict=True)]
    of_restarts = np.array([scores.accuracy for scores in tried.values()])  # (k, restarts)
    return Curve(
        k=counts,
        sse=sse,
        accuracy=accuracy,
        # Ties go to the smallest k: on compact T_kn the accuracy stays at its maximum for long.
        k_accuracy=counts[int(np.argmax(accuracy))],
        k_accuracy_spread=[counts[int(row)] for row in of_restarts.argmax(axis=0)],
        k_elbow=elbow(counts, sse),
    )
