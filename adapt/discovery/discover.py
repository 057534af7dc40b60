"""Algorithm 1: which target images are surely known or new, how many classes are new, and which.

Functions over arrays: K known classes, logits (N, C) with C > K, features (N, D).
"""

import math
from dataclasses import dataclass, field, replace

import numpy as np
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist
from scipy.special import log_softmax
from sklearn.decomposition import PCA

from scda.adapt.config import TrainConfig
from scda.adapt.discovery.findings import Finding, Status
from scda.adapt.discovery.graph import count_communities
from scda.adapt.discovery.kmeans import Clustering, Points, cluster
from scda.adapt.discovery.sweep import Curve, k_hat, sweep_curve
from scda.models.index import Ids

_FINAL_EXTRA_RESTARTS = 1
_STAND_IN = Finding(
    Status.K_UNSURE,
    "no image was predicted as new; the tenth of the target with the highest entropy was used",
    "inspect the discovered classes, or use --novel no",
)
_NO_CANDIDATE = Finding(
    Status.K_UNSURE,
    "no image is predicted as new any more",
    "use --novel no if the target holds only known classes, or --novel yes if it does not",
)


def empty_ids() -> Ids:
    """Return no row at all."""
    return np.empty(0, np.int64)


@dataclass(frozen=True)
class Candidates:
    """The confident target images: T_kn with known labels, T_im without."""

    known: Ids  # rows of the target, T_kn
    known_labels: Ids  # (len(known),), 0 to K - 1
    implicit: Ids  # rows of the target, T_im


@dataclass(frozen=True)
class Discovery:
    """The result of Algorithm 1 for one round."""

    k_star: int
    candidates: Candidates
    implicit_labels: Ids  # (len(candidates.implicit),), 0 to k* - 1
    curve: Curve | None  # None where k* was given
    findings: tuple[Finding, ...] = ()  # what the user should know of this round
    verdict: Finding | None = None  # of the closed round; kept in all rounds after it
    # Of a closed round: rows of the target to look for new classes among.
    suspects: Ids = field(default_factory=empty_ids)
    k_scda: int | None = None  # k* by Algorithm 1; None where k* was given
    k_graph: int | None = None  # k* by the graph, the same
    k_path: tuple[int, ...] = ()  # k* of every round so far, this one's last


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
    candidates = select(logits, num_known=num_known, implicit_share=config.implicit_share)
    findings: tuple[Finding, ...] = ()
    # Only who said that there are new classes gets some out of nothing.
    if not len(candidates.implicit) and (config.novel == "yes" or config.k):
        candidates = _least_certain(candidates, logits)
        findings = (_STAND_IN,)
    if not len(candidates.implicit):
        return Discovery(0, candidates, empty_ids(), None, (_NO_CANDIDATE,))
    found = cluster_candidates(candidates, features, backbone, num_known=num_known, config=config)
    return replace(found, findings=findings + found.findings)


def cluster_candidates(
    candidates: Candidates,
    features: Points,
    backbone: Points,
    *,
    num_known: int,
    config: TrainConfig,
) -> Discovery:
    """Return how many classes T_im holds, one or more, and which image belongs to which.

    Args:
        candidates: T_kn and T_im, which is not empty.
        features: (N, D) of the whole target, F's output.
        backbone: (N, D_backbone), the frozen backbone's output.
        num_known: K.
        config: Of the run.

    Source: SCDA, Algorithm 1, lines 3 to 9.
    """
    findings: list[Finding] = []
    points = cluster_space(features, backbone, candidates, config)
    split = len(candidates.known)
    curve, k_scda, k_graph = None, None, None
    k_star = min(config.k, len(candidates.implicit))
    if not config.k:
        curve = sweep_curve(points, candidates.known_labels, num_known=num_known, config=config)
        k_scda = max(1, k_hat(curve) - num_known)
        k_graph = count_communities(points, candidates.known_labels, seed=config.seed)
        votes = {"scda": k_scda, "graph": k_graph, "both": math.ceil((k_scda + k_graph) / 2)}
        k_star = _bounded(votes[config.k_method], len(candidates.implicit), config)
        if max(k_star, k_scda) >= config.k_max:  # beyond it, the sweep did not look
            bound = f"the number of new classes reached k_max = {config.k_max}"
            findings.append(Finding(Status.K_AT_BOUND, bound, "use a larger --k-max"))
    labels = (
        _joint(points, candidates.known_labels, num_known + k_star, num_known, config)
        if config.assignment == "joint" and num_known + k_star <= len(points)
        else _separate(points[split:], k_star, config).labels
    )
    _, labels = np.unique(labels, return_inverse=True)  # an empty cluster is no class
    k_star = int(labels.max()) + 1
    if k_star < config.k:
        fewer = f"the new images form {k_star} classes instead of --k {config.k}"
        findings.append(Finding(Status.FEWER_THAN_K, fewer, "use a smaller --k"))
    labels = labels.astype(np.int64)
    return Discovery(
        k_star, candidates, labels, curve, tuple(findings), k_scda=k_scda, k_graph=k_graph
    )


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
    halves = [
        lower_half(np.flatnonzero(predicted == label), entropies)
        for label in range(logits.shape[1])
    ]
    known = np.sort(np.concatenate([halves[label] for label in range(num_known)]))
    new = [halves[label] for label in range(num_known, logits.shape[1])]
    implicit = np.concatenate([*new, empty_ids()])
    if implicit_share == "all":
        implicit = np.flatnonzero(predicted >= num_known)
    return Candidates(known, predicted[known], np.sort(implicit).astype(np.int64))


def lower_half(members: Ids, entropies: Points) -> Ids:
    """Return the half of the rows with the lowest entropy, at least one of each."""
    order = members[np.argsort(entropies[members], kind="stable")]
    return order[: math.ceil(len(members) / 2)]


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

    `features` are F's, which has already pulled the new classes together; `backbone` the ones
    before it; `both` puts them side by side. The backbone's, and both, are of length 1, centred,
    and scaled to the same mean square.
    """
    rows = np.concatenate([candidates.known, candidates.implicit])
    points = features[rows].astype(np.float32)
    if config.cluster_space == "both":
        points = np.hstack([_balanced(points), _balanced(backbone[rows])])
    if config.cluster_space == "backbone":
        points = _balanced(backbone[rows])
    dimensions = min(config.pca, points.shape[1], len(points) - 1)
    if dimensions and np.ptp(points, axis=0).any():
        points = PCA(dimensions, random_state=config.seed).fit_transform(points)
    return np.ascontiguousarray(points, np.float32)


def match_to_previous(new: Discovery, old: Discovery | None) -> Discovery:
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


def _least_certain(candidates: Candidates, logits: Points) -> Candidates:
    tenth = np.argsort(-entropy(logits), kind="stable")[: len(logits) // 10]
    kept = ~np.isin(candidates.known, tenth)
    return Candidates(candidates.known[kept], candidates.known_labels[kept], np.sort(tenth))


def _bounded(wanted: int, num_implicit: int, config: TrainConfig) -> int:
    return max(1, min(wanted, config.k_max, num_implicit))


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
