"""Algorithm 1: select confident target images, count the new classes, and label both kinds.

Functions over arrays: K known classes, logits (N, C) with C > K, features (N, D).
"""

from dataclasses import dataclass, field, replace

import numpy as np

from scda.adapt.config import TrainConfig
from scda.adapt.discovery.anchors import keep_apart
from scda.adapt.discovery.assignment import assign
from scda.adapt.discovery.counting.estimate import Curve, KEstimate
from scda.adapt.discovery.counting.estimators import chosen_k, voting_estimators
from scda.adapt.discovery.findings import Finding, Status
from scda.adapt.discovery.grain import Grain
from scda.adapt.discovery.kmeans import Points
from scda.adapt.discovery.matching import contingency, match
from scda.adapt.discovery.selection import Candidates, empty_ids, select, select_least_certain
from scda.adapt.discovery.space import space_of
from scda.models.index import Ids

_STAND_IN = Finding(
    Status.K_UNSURE,
    "no image was predicted as new; the tenth of the target with the highest entropy was used",
    "inspect the discovered classes, or use --novel no",
)
_NO_CANDIDATE = "no image is predicted as new any longer"
_TOO_FEW = "no image is predicted as new, and a target of fewer than 10 images has no tenth"


@dataclass(frozen=True)
class Discovery:
    """The result of Algorithm 1 for one round."""

    k_star: int
    candidates: Candidates
    implicit_labels: Ids  # (len(candidates.implicit),), 0 to k* - 1
    curve: Curve | None = None  # None where k* was given
    findings: tuple[Finding, ...] = ()  # what the user should know of this round
    verdict: Finding | None = None  # that nothing is new; kept in all rounds after it
    votes: dict[str, int] = field(default_factory=dict)  # k* by estimator; empty where k* was given
    k_path: tuple[int, ...] = ()  # k* of every round up to this one


def discover(
    logits: Points,
    features: Points,
    backbone: Points,
    *,
    num_known: int,
    config: TrainConfig,
    anchors: Ids | None = None,
    grain: Grain | None = None,
) -> Discovery:
    """Return how many new classes the target holds, and pseudo-labels for both kinds.

    Args:
        logits: Logits of the whole target, (N, C).
        features: Output of F, (N, D).
        backbone: Output of the backbone, (N, D_backbone).
        num_known: Number of known classes, K.
        config: Configuration of the run.
        anchors: Classes that are to remain classes, (N,): the class of each image, or -1.
        grain: How fine communities are, where classes of the source touch.

    Source: SCDA, Algorithm 1, Eq. 7 and 8.
    """
    candidates = select(logits, num_known=num_known, implicit_share=config.implicit_share)
    findings: tuple[Finding, ...] = ()
    # Without a candidate, new classes are formed only if the user states that there are some.
    if not len(candidates.implicit) and (config.novel == "yes" or config.k):
        candidates = select_least_certain(candidates, logits)
        findings = (_STAND_IN,)
    if not len(candidates.implicit):
        return Discovery(0, candidates, empty_ids(), findings=(_without_candidate(config),))
    found = cluster_candidates(
        candidates,
        features,
        backbone,
        num_known=num_known,
        config=config,
        anchors=anchors,
        grain=grain,
    )
    return replace(found, findings=findings + found.findings)


def _without_candidate(config: TrainConfig) -> Finding:
    known_only = "use --novel no if the target holds only known classes"
    if config.novel == "yes" or config.k:  # even the tenth with the highest entropy is no image
        return Finding(Status.K_UNSURE, _TOO_FEW, f"add images, or {known_only}")
    return Finding(Status.K_UNSURE, _NO_CANDIDATE, f"{known_only}, or --novel yes if it does not")


def closed(logits: Points, verdict: Finding | None) -> Discovery:
    """Return a discovery of nothing: T_kn is chosen among known classes alone, and k* is 0.

    Args:
        logits: Logits of the known classes, (N, K).
        verdict: Finding that nothing is new; None where the user stated it.
    """
    candidates = select(logits, num_known=logits.shape[1], implicit_share="half")
    return Discovery(0, candidates, empty_ids(), verdict=verdict)


def without_outputs(discovery: Discovery, kept: Ids, num_known: int) -> Discovery:
    """Return a discovery without the classes whose outputs are not kept.

    Args:
        discovery: Discovery that a round trained.
        kept: Outputs that remain, rising; the known ones, 0 to K - 1, are among them.
        num_known: Number of known classes, K.
    """
    number = np.full(num_known + discovery.k_star, -1)
    number[kept] = np.arange(len(kept)) - num_known
    labels = number[num_known + discovery.implicit_labels]
    candidates, k_star = discovery.candidates, len(kept) - num_known
    return replace(
        discovery,
        k_star=k_star,
        candidates=replace(candidates, implicit=candidates.implicit[labels >= 0]),
        implicit_labels=labels[labels >= 0].astype(np.int64),
        k_path=(*discovery.k_path[:-1], k_star),
    )


def cluster_candidates(
    candidates: Candidates,
    features: Points,
    backbone: Points,
    *,
    num_known: int,
    config: TrainConfig,
    anchors: Ids | None = None,
    grain: Grain | None = None,
) -> Discovery:
    """Return how many classes T_im holds, one or more, and which image belongs to which.

    Args:
        candidates: T_kn and T_im, which is not empty.
        features: Output of F for the whole target, (N, D).
        backbone: Output of the backbone for the whole target, (N, D_backbone).
        num_known: Number of known classes, K.
        config: Configuration of the run.
        anchors: Classes that are to remain classes, (M,): the class of each image, or -1.
        grain: How fine communities are, where classes of the source touch.

    Source: SCDA, Algorithm 1, lines 3 to 9.
    """
    # A given k* is not estimated.
    estimators = {} if config.k else voting_estimators(config.k_method)
    whole = "surroundings" in estimators
    space = space_of(
        features,
        backbone,
        candidates,
        num_known=num_known,
        config=config,
        whole=whole,
        grain=grain,
    )
    estimates = {name: estimate(space) for name, estimate in estimators.items()}
    votes = {name: estimate.k for name, estimate in estimates.items()}
    k_star = min(config.k, len(candidates.implicit))
    if votes:
        k_star = min(chosen_k(votes, config.k_method), config.k_max, len(candidates.implicit))
    labels = assign(space, k_star)
    if anchors is not None and not config.k:
        labels = keep_apart(space.implicit, labels, anchors[candidates.implicit])
    formed = int(labels.max()) + 1
    return Discovery(
        formed,
        candidates,
        labels,
        next((estimate.curve for estimate in estimates.values() if estimate.curve), None),
        (*_bound(k_star, estimates, config), *_fewer(formed, config)),
        votes=votes,
    )


def match_to_previous(new: Discovery, old: Discovery | None) -> Discovery:
    """Return `new` with its classes in the order of the old ones they share most images with.

    A class thus keeps its number from round to round while it keeps its images (choice 22).
    """
    if old is None or not new.k_star or not old.k_star:
        return new
    shared, in_new, in_old = np.intersect1d(
        new.candidates.implicit, old.candidates.implicit, return_indices=True
    )
    if not len(shared):
        return new
    pair = new.implicit_labels[in_new], old.implicit_labels[in_old]
    matched = match(contingency(*pair, (new.k_star, old.k_star)))
    order = sorted(range(new.k_star), key=lambda label: matched.get(label, old.k_star + label))
    position = np.argsort(order)
    return replace(new, implicit_labels=position[new.implicit_labels].astype(np.int64))


def _bound(k_star: int, estimates: dict[str, KEstimate], config: TrainConfig) -> list[Finding]:
    limited = any(estimate.at_bound for estimate in estimates.values())
    if not estimates or not (limited or k_star >= config.k_max):
        return []
    found = f"the number of new classes reached k_max = {config.k_max}"
    return [Finding(Status.K_AT_BOUND, found, "use a larger --k-max")]


def _fewer(formed: int, config: TrainConfig) -> list[Finding]:
    if formed >= config.k:
        return []
    found = f"the new images form {formed} classes instead of --k {config.k}"
    return [Finding(Status.FEWER_THAN_K, found, "use a smaller --k")]
