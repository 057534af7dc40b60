"""Estimators of the number of new classes: SCDA's and others, on the same features.

All get F's features after pre-training, and T_kn, its pseudo-labels and T_im from `select`. k is
the number of new classes; ties go to the smallest k.
"""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.spatial.distance import cdist
from sklearn.cluster import kmeans_plusplus
from sklearn.metrics import silhouette_score
from threadpoolctl import threadpool_limits

from benchmarks.open_set.results import Record
from benchmarks.open_set.runs import Inputs, Run
from benchmarks.open_set.studies import Request, main_runs
from scda.adapt.config import TrainConfig
from scda.adapt.discovery.counting.estimate import Curve
from scda.adapt.discovery.counting.sweep import sweep_curve
from scda.adapt.discovery.discover import discover
from scda.adapt.discovery.kmeans import STEPS, Points, sweep
from scda.adapt.discovery.matching import clustering_accuracy
from scda.adapt.discovery.propagation import neighbour_graph, propagate
from scda.adapt.discovery.selection import select
from scda.adapt.discovery.space import cluster_space
from scda.adapt.training.algorithm import adapt
from scda.adapt.training.networks import infer
from scda.models.index import Ids


@dataclass(frozen=True)
class Pretrained:
    """The target after pre-training, and the configuration of the run."""

    logits: Points  # (N, C), after label propagation if the preset uses it
    features: Points  # (N, D)
    backbone: Points  # (N, D_backbone)
    num_known: int
    config: TrainConfig


@dataclass(frozen=True)
class Space:
    """The candidates in the space in which they are clustered."""

    known: Points  # points of T_kn
    known_labels: Ids  # pseudo-labels of T_kn, 0 to K - 1
    implicit: Points  # points of T_im


def k_runs(request: Request) -> list[Run]:
    """Return the runs of every estimator, task and seed; `variant` is the estimator."""
    runs = main_runs(replace(request, rows=()))
    return [
        replace(run, name={**run.name, "variant": estimator})
        for estimator in ESTIMATORS
        if request.selects(estimator)
        for run in runs
    ]


def measure_k(run: Run, inputs: Inputs) -> Record:
    """Return the record of an estimator after pre-training; `seconds` excludes pre-training."""
    with threadpool_limits(1):
        pretrained = _pretrained(run, inputs)
        started = time.monotonic()
        k_star = ESTIMATORS[run.name["variant"]](pretrained)
        seconds = time.monotonic() - started
    k_true = len({label for label in run.lists.truth if label >= run.lists.num_known})
    errors = {"k_signed": k_star - k_true, "k_abs": abs(k_star - k_true)}
    return {**run.name, "k_star": k_star, "k_true": k_true, **errors, "seconds": round(seconds, 2)}


def scda(after: Pretrained) -> int:
    """Return k* of Algorithm 1: the mean k of the accuracy and of the elbow."""
    return _discovered(after, "scda")


def graph(after: Pretrained) -> int:
    """Return the number of communities of T_im (`--k-method graph`)."""
    return _discovered(after, "graph")


def both(after: Pretrained) -> int:
    """Return the mean of `scda` and `graph`, as in the preset `robust`."""
    return _discovered(after, "both")


def elbow(after: Pretrained) -> int:
    """Return the k at the bend of the SSE curve."""
    return _curve(after).k_elbow - after.num_known


def accuracy(after: Pretrained) -> int:
    """Return the k with the best clustering accuracy of T_kn."""
    return _curve(after).k_accuracy - after.num_known


def silhouette(after: Pretrained) -> int:
    """Return the k with the largest mean silhouette of T_kn and T_im together.

    k-means, restarts and the range of k are those of SCDA's sweep.

    Source: Rousseeuw 1987; `SC` in SCDA's table of k.
    """
    config, num_known = after.config, after.num_known
    space = space_of(after)
    points = np.vstack([space.known, space.implicit])
    counts = [num_known + k for k in range(1, config.k_max + 1) if num_known + k < len(points) // 2]
    between = distances(points)
    scores = [
        mean_silhouette(between, min(runs, key=lambda run: run.sse).labels)
        for runs in sweep(points, counts, restarts=config.restarts, seed=config.seed)
    ]
    return counts[int(np.argmax(scores))] - num_known


def dtc(after: Pretrained) -> int:
    """Return the estimate of Deep Transfer Clustering on SCDA's candidates.

    Half of the known classes in T_kn, chosen by the seed, are anchors; the others are probes, whose
    labels are hidden from the clustering. For k = 1 to k_max, constrained k-means clusters T_kn and
    T_im: an anchor image stays in the cluster of its class, and every other image goes to the
    nearest centroid. Initial centroids are the means of the anchor classes, and k-means++ seeds
    among the other images, one per probe class and k more; the restart with the smallest SSE is
    taken. One k has the best clustering accuracy on the probes, another the best mean silhouette on
    T_im; the estimate is their mean, rounded up as in SCDA. The silhouette of T_im does not change
    if a new class shares a cluster with a known one, so for well separated classes it reaches its
    maximum at a small k and the estimate is too low. Differences: DTC first learns features on the
    labelled classes, has true labels for them, and drops very small clusters at the end.

    Source: Han, Vedaldi, Zisserman 2019, "Learning to Discover Novel Visual Categories via Deep
    Transfer Clustering", section on the number of classes, https://arxiv.org/abs/1908.09884
    """
    return math.ceil(sum(dtc_halves(after)) / 2)


def dtc_halves(after: Pretrained) -> tuple[int, int]:
    """Return the k with the best accuracy on probes and the k with the best silhouette of T_im."""
    space = space_of(after)
    classes = np.random.default_rng(after.config.seed).permutation(np.unique(space.known_labels))
    of_anchor = np.isin(space.known_labels, classes[: len(classes) // 2])
    num_probes = len(classes) - len(classes) // 2
    _, anchor_labels = np.unique(space.known_labels[of_anchor], return_inverse=True)
    probe_labels = space.known_labels[~of_anchor]
    free = np.vstack([space.known[~of_anchor], space.implicit])
    most = min(after.config.k_max, len(free) // 2 - num_probes)
    between = distances(space.implicit)
    accuracies, silhouettes = [], []
    all_seeds = [
        kmeans_plusplus(free, num_probes + most, random_state=after.config.seed + restart)[0]
        for restart in range(after.config.restarts)
    ]
    for k in range(1, most + 1):
        labels = _constrained(
            space.known[of_anchor], anchor_labels, free, [s[: num_probes + k] for s in all_seeds]
        )
        accuracies.append(clustering_accuracy(labels[: len(probe_labels)], probe_labels))
        silhouettes.append(mean_silhouette(between, labels[len(probe_labels) :]))
    return int(np.argmax(accuracies)) + 1, int(np.argmax(silhouettes)) + 1


ESTIMATORS: dict[str, Callable[[Pretrained], int]] = {
    "scda": scda,
    "graph": graph,
    "both": both,
    "elbow": elbow,
    "accuracy": accuracy,
    "silhouette": silhouette,
    "dtc": dtc,
}


def space_of(after: Pretrained) -> Space:
    """Return T_kn and T_im in the space in which SCDA clusters."""
    candidates = select(
        after.logits, num_known=after.num_known, implicit_share=after.config.implicit_share
    )
    points = cluster_space(after.features, after.backbone, candidates.rows, after.config)
    split = len(candidates.known)
    return Space(points[:split], candidates.known_labels, points[split:])


def constrained_kmeans(
    anchors: Points, anchor_labels: Ids, free: Points, seeds: Points, *, steps: int = STEPS
) -> tuple[Ids, float]:
    """Return the cluster of every free point, and the SSE of all points.

    Args:
        anchors: Points that stay in the cluster of their label, (A, D).
        anchor_labels: Labels of the anchors, (A,), from 0; their clusters come first.
        free: Points to assign, (N, D).
        seeds: Initial centroids of the other clusters, (M, D).
        steps: Number of Lloyd iterations.
    """
    num_anchored = int(anchor_labels.max()) + 1 if len(anchor_labels) else 0
    points = np.vstack([anchors, free])
    own = [anchors[anchor_labels == label].mean(axis=0) for label in range(num_anchored)]
    centroids = np.vstack([*own, seeds])
    for _ in range(steps):
        labels = np.concatenate([anchor_labels, _nearest(free, centroids)])
        members = np.eye(len(centroids), dtype=np.float32)[labels]  # (A + N, M)
        sizes = members.sum(axis=0)[:, None]
        means = members.T @ points / np.maximum(sizes, 1)
        centroids = np.where(sizes > 0, means, centroids)  # an empty cluster stays where it is
    nearest = _nearest(free, centroids)
    chosen = centroids[np.concatenate([anchor_labels, nearest])]
    return nearest, float(((points - chosen) ** 2).sum())


def _pretrained(run: Run, inputs: Inputs) -> Pretrained:
    adapted = adapt(inputs.source, inputs.target, replace(run.config, rounds=0))
    logits, features = (tensor.numpy() for tensor in infer(adapted.networks, inputs.target))
    backbone, reach = inputs.target.numpy(), run.config.propagation_alpha
    if reach:
        logits = propagate(logits, neighbour_graph(backbone), reach)
    return Pretrained(logits, features, backbone, logits.shape[1] - 1, run.config)


def _discovered(after: Pretrained, method: str) -> int:
    config = replace(after.config, k_method=method)
    known = after.num_known
    found = discover(after.logits, after.features, after.backbone, num_known=known, config=config)
    return found.k_star


def _curve(after: Pretrained) -> Curve:
    space = space_of(after)
    points = np.vstack([space.known, space.implicit])
    return sweep_curve(points, space.known_labels, num_known=after.num_known, config=after.config)


def _constrained(anchors: Points, anchor_labels: Ids, free: Points, seeds: Sequence[Points]) -> Ids:
    runs = [constrained_kmeans(anchors, anchor_labels, free, start) for start in seeds]
    return min(runs, key=lambda run: run[1])[0]


def _nearest(points: Points, centroids: Points) -> Ids:
    return np.asarray(cdist(points, centroids, "sqeuclidean").argmin(axis=1), np.int64)


def distances(points: Points) -> Points:
    """Return the distances between all pairs of points (N, D) as (N, N)."""
    return np.asarray(cdist(points, points))


def mean_silhouette(between: Points, labels: Ids) -> float:
    """Return the mean silhouette, -1 to 1; -1 if it is not defined."""
    if not 2 <= len(np.unique(labels)) < len(labels):
        return -1.0
    return float(silhouette_score(between, labels, metric="precomputed"))
