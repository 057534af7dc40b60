"""How many clusters: the sweep over k with its two criteria, the middle of Algorithm 1."""

import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from kneed import KneeLocator
from scipy.optimize import linear_sum_assignment

from scda.adapt.config import TrainConfig
from scda.adapt.discovery.kmeans import Points, clusterings, seedings
from scda.adapt.discovery.sweep_search import search
from scda.models.index import Ids

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Curve:
    """What the sweep over k found; k counts all clusters, known ones included."""

    k: list[int]  # those tried, rising: all of a short range, see ksweep
    sse: list[float]  # of T_kn and T_im, best restart, in squared feature units
    accuracy: list[float]  # CA of T_kn, best restart, 0 to 1
    k_accuracy: int
    k_accuracy_spread: list[int]  # the same for each restart alone, among the k tried
    k_elbow: int


def k_hat(curve: Curve) -> int:
    """Return the number of clusters that both criteria together speak for (Algorithm 1, line 7)."""
    return math.ceil((curve.k_accuracy + curve.k_elbow) / 2)


def sweep_curve(points: Points, known_labels: Ids, *, num_known: int, config: TrainConfig) -> Curve:
    """Return the curves over k and the k each criterion picks.

    Args:
        points: (N, D), T_kn first.
        known_labels: (n,) pseudo-labels of T_kn.
        num_known: K.
        config: Of the run.

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


def clustering_accuracy(clusters: Ids, labels: Ids) -> float:
    """Return the share of images whose cluster stands for their label, 0 to 1.

    Clusters and labels are matched one to one, so that the most images agree; clusters left over
    count as wrong.

    Source: SCDA, Eq. 8; Kuhn 1955.
    """
    if not len(labels):
        return 0.0
    table = contingency(clusters, labels)
    return float(table[linear_sum_assignment(table, maximize=True)].sum() / len(labels))


def contingency(rows: Ids, columns: Ids) -> Ids:
    """Return how many images have each pair of labels, (max(rows) + 1, max(columns) + 1)."""
    table = np.zeros((rows.max() + 1, columns.max() + 1), np.int64)
    np.add.at(table, (rows, columns), 1)
    return table


def elbow(counts: Sequence[int], sse: Sequence[float]) -> int:
    """Return the k at the bend of the SSE curve: the maximum of Kneedle's difference curve.

    kneed's own knee is the first local maximum, which is far too low for many classes. With three
    points or fewer, or a flat curve, there is no bend: the middle k, and a line in the log.

    Source: Satopaa et al. 2011, "Finding a Kneedle in a Haystack" (choice 12).
    """
    middle = counts[len(counts) // 2]
    if len(counts) <= 3 or not sse[0] > sse[-1]:
        log.warning(
            "no bend in the SSE curve over %d values of k: took k = %d", len(counts), middle
        )
        return middle
    locator = KneeLocator(counts, sse, curve="convex", direction="decreasing")
    return int(counts[int(np.argmax(locator.y_difference))])


@dataclass(frozen=True)
class _Scores:
    """What one k gave, restart by restart."""

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
