"""Algorithm 1: which target images are surely known or new, how many classes are new, and which.

Functions over arrays: K known classes, logits (N, C) with C > K, features (N, D).
"""

import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from kneed import KneeLocator
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist
from scipy.special import log_softmax
from sklearn.decomposition import PCA

from scda.adapt.config import TrainConfig
from scda.adapt.kmeans import Clustering, Points, cluster, clusterings, seedings
from scda.adapt.ksweep import search

log = logging.getLogger(__name__)

Ids = NDArray[np.int64]
_FINAL_EXTRA_RESTARTS = 1


@dataclass(frozen=True)
class Candidates:
    """The confident target images: T_kn with known labels, T_im without."""

    known: Ids  # rows of the target, T_kn
    known_labels: Ids  # (len(known),), 0 to K - 1
    implicit: Ids  # rows of the target, T_im


@dataclass(frozen=True)
class Curve:
    """What the sweep over k found; k counts all clusters, known ones included."""

    k: list[int]  # those tried, rising: all of a short range, see ksweep
    sse: list[float]  # of T_kn and T_im, best restart, in squared feature units
    accuracy: list[float]  # CA of T_kn, best restart, 0 to 1
    k_accuracy: int
    k_accuracy_spread: list[int]  # the same for each restart alone, among the k tried
    k_elbow: int


@dataclass(frozen=True)
class Discovery:
    """The result of Algorithm 1 for one round."""

    k_star: int
    candidates: Candidates
    implicit_labels: Ids  # (len(candidates.implicit),), 0 to k* - 1
    curve: Curve | None  # None where k* was given
    notes: list[str]  # what the user should know


def discover(
    logits: Points, features: Points, backbone: Points, *, num_known: int, config: TrainConfig
) -> Discovery:
    """Return how many new classes the target holds, and pseudo-labels for both kinds.

    Args:
        logits: (N, C) of the whole target.
        features: (N, D), F's output.
        backbone: (N, D_backbone), the frozen backbone's output.
        num_known: K.
        config: Of the run.

    Source: SCDA, Algorithm 1, Eq. 7 and 8.
    """
    notes: list[str] = []
    candidates = select(logits, num_known=num_known, implicit_share=config.implicit_share)
    if not len(candidates.implicit):
        candidates = _least_certain(candidates, logits)
        if not len(candidates.implicit):
            return Discovery(0, candidates, candidates.implicit, None, ["no image was called new"])
        notes.append("k unsure: no image was called new; the tenth of highest entropy stood in")
    points = cluster_space(features, backbone, candidates, config)
    split = len(candidates.known)
    if config.k:
        curve, k_star = None, min(config.k, len(candidates.implicit))
    else:
        curve = estimate(points, candidates.known_labels, num_known=num_known, config=config)
        k_star = _k_star(curve, num_known, len(candidates.implicit), config, notes)
    labels = (
        _joint(points, candidates.known_labels, num_known + k_star, num_known, config)
        if config.assignment == "joint" and num_known + k_star <= len(points)
        else _separate(points[split:], k_star, config).labels
    )
    _, labels = np.unique(labels, return_inverse=True)  # an empty cluster is no class
    if labels.max() + 1 < config.k:
        notes.append(f"fewer than asked for: {labels.max() + 1} classes, not --k {config.k}")
    return Discovery(int(labels.max()) + 1, candidates, labels.astype(np.int64), curve, notes)


def select(logits: Points, *, num_known: int, implicit_share: str) -> Candidates:
    """Return the lower-entropy half of every predicted class, at least one image of each.

    Args:
        logits: (N, C).
        num_known: K.
        implicit_share: `half` treats discovered classes the same; `all` takes every image that
            is predicted new: in the first round the half of the one `unknown` pool misses whole
            classes (choice 8).

    Source: SCDA, "High-confident target candidates", Eq. 7.
    """
    predicted, entropies = logits.argmax(axis=1), entropy(logits)
    halves = {}
    for label in range(logits.shape[1]):
        members = np.flatnonzero(predicted == label)
        order = members[np.argsort(entropies[members], kind="stable")]
        halves[label] = order[: math.ceil(len(members) / 2)]
    known = np.sort(np.concatenate([halves[label] for label in range(num_known)]))
    new = [halves[label] for label in range(num_known, logits.shape[1])]
    implicit = np.concatenate([*new, np.empty(0, np.int64)])
    if implicit_share == "all":
        implicit = np.flatnonzero(predicted >= num_known)
    return Candidates(known, predicted[known], np.sort(implicit).astype(np.int64))


def entropy(logits: Points) -> Points:
    """Return each image's prediction entropy in nats, (N,).

    Source: SCDA, Eq. 7.
    """
    log_probs = log_softmax(logits.astype(np.float64), axis=1)
    return np.asarray(-(np.exp(log_probs) * log_probs).sum(axis=1), np.float32)


def cluster_space(
    features: Points, backbone: Points, candidates: Candidates, config: TrainConfig
) -> Points:
    """Return what is clustered, (len(known) + len(implicit), D'): T_kn first, then T_im.

    `both` puts F's features and the backbone's side by side, each of length 1, centred, and
    scaled to the same mean square: F alone has already pulled the new classes together.
    """
    rows = np.concatenate([candidates.known, candidates.implicit])
    points = features[rows].astype(np.float32)
    if config.cluster_space == "both":
        points = np.hstack([_balanced(points), _balanced(backbone[rows])])
    dimensions = min(config.pca, points.shape[1], len(points) - 1)
    if dimensions and np.ptp(points, axis=0).any():
        points = PCA(dimensions, random_state=config.seed).fit_transform(points)
    return np.ascontiguousarray(points, np.float32)


def estimate(points: Points, known_labels: Ids, *, num_known: int, config: TrainConfig) -> Curve:
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


def aligned(new: Discovery, old: Discovery | None) -> Discovery:
    """Return `new` with its classes in the order of the old ones they share most images with.

    So a class keeps its number from round to round as far as it stays the same (choice 22).
    """
    if old is None or not new.k_star or not old.k_star:
        return new
    shared, in_new, in_old = np.intersect1d(
        new.candidates.implicit, old.candidates.implicit, return_indices=True
    )
    if not len(shared):
        return new
    table = np.zeros((new.k_star, old.k_star), np.int64)
    np.add.at(table, (new.implicit_labels[in_new], old.implicit_labels[in_old]), 1)
    matched = dict(zip(*linear_sum_assignment(table, maximize=True), strict=True))
    order = sorted(range(new.k_star), key=lambda label: matched.get(label, old.k_star + label))
    position = np.argsort(order)
    return replace(new, implicit_labels=position[new.implicit_labels].astype(np.int64))


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


def _least_certain(candidates: Candidates, logits: Points) -> Candidates:
    tenth = np.argsort(-entropy(logits), kind="stable")[: len(logits) // 10]
    kept = ~np.isin(candidates.known, tenth)
    return Candidates(candidates.known[kept], candidates.known_labels[kept], np.sort(tenth))


def _k_star(
    curve: Curve, num_known: int, num_implicit: int, config: TrainConfig, notes: list[str]
) -> int:
    wanted = math.ceil((curve.k_accuracy + curve.k_elbow) / 2) - num_known
    k_star = max(1, min(wanted, config.k_max, num_implicit))
    if k_star == config.k_max:
        notes.append(f"k at its bound: k* = k_max = {config.k_max}; try a larger --k-max")
    return k_star


def _separate(points: Points, k_star: int, config: TrainConfig) -> Clustering:
    restarts = config.restarts + _FINAL_EXTRA_RESTARTS
    distinct = len(np.unique(points, axis=0))
    return cluster(points, min(k_star, distinct), restarts=restarts, seed=config.seed)


def _joint(
    points: Points, known_labels: Ids, k_hat: int, num_known: int, config: TrainConfig
) -> Ids:
    """Assign T_im to those clusters of the joint clustering that stand for no known class."""
    split = len(known_labels)
    joint = cluster(points, k_hat, restarts=config.restarts, seed=config.seed)
    table = np.zeros((k_hat, num_known))
    np.add.at(table, (joint.labels[:split], known_labels), 1)
    # A known class without images takes the cluster with the fewest of T_im, not just any.
    new = np.bincount(joint.labels[split:], minlength=k_hat)
    of_known, _ = linear_sum_assignment(table - new[:, None] / (len(points) + 1), maximize=True)
    free = np.delete(joint.centroids, of_known, axis=0)
    return np.asarray(cdist(points[split:], free).argmin(axis=1), np.int64)


def _balanced(features: Points) -> Points:
    lengths = np.linalg.norm(features, axis=1, keepdims=True)
    centred = features / np.maximum(lengths, np.finfo(np.float32).tiny)
    centred = centred - centred.mean(axis=0)
    scale = np.sqrt((centred**2).sum(axis=1).mean())
    return np.asarray(centred / max(scale, np.finfo(np.float32).tiny), np.float32)
