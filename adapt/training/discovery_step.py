"""The discovery step of a round: whether anything is new, how many classes, and which images."""

from dataclasses import replace

import numpy as np
from torch import nn

from scda.adapt.config import TrainConfig
from scda.adapt.discovery.discover import (
    Discovery,
    closed,
    discover,
    match_to_previous,
    without_outputs,
)
from scda.adapt.discovery.findings import Finding, Status
from scda.adapt.discovery.kmeans import Points
from scda.adapt.discovery.novelty.false_classes import kept_outputs
from scda.adapt.discovery.novelty.orphans import Orphans, find_orphans
from scda.adapt.discovery.propagation import propagate
from scda.adapt.discovery.seeds import certain, named, with_labelled
from scda.adapt.runtime import distributed
from scda.adapt.training.domains import Domains
from scda.adapt.training.networks import Networks, infer, infer_together
from scda.adapt.training.state import RunState
from scda.models.index import Ids

_MISSED = "a small new class may be missed; use --novel yes to search for new classes"


def discover_classes(state: RunState, domains: Domains, config: TrainConfig) -> Discovery:
    """Return the discovery with the networks of the last stage.

    Args:
        state: State after the last stage.
        domains: Both domains as its backbone sees them.
        config: Configuration of the run.

    Source: SCDA, Algorithm 1.
    """
    logits, features = (tensor.numpy() for tensor in infer_together(state.networks, domains.target))
    before, shared = state.discovery, domains.shared
    num_known, given = domains.num_known, shared.labels if shared else None
    if before is None and domains.first:
        num_known, given = domains.num_first, domains.first.given
    verdict = before.verdict if before else None
    decided = _propagated(logits, domains, config, given)
    orphans = None
    if before is None and config.novelty == "orphans":
        orphans, verdict = _orphans(decided, domains, config)
        decided = orphans.logits
    if verdict or (config.novel == "no" and not config.k):
        known = logits[:, :num_known]
        known = orphans.known_logits if orphans else _propagated(known, domains, config, given)
        return _with_labels(closed(known, verdict), before, domains)
    found = discover(
        decided,
        features,
        domains.target.numpy(),
        num_known=num_known,
        config=config,
        anchors=domains.anchors,
        grain=domains.grain,
    )
    found = _with_labels(found, before, domains)
    path = (*before.k_path, found.k_star) if before else (found.k_star,)
    return match_to_previous(replace(found, k_path=path), before)


def drop_false_classes(state: RunState, domains: Domains, config: TrainConfig) -> RunState:
    """Return the state of a round without the discovered classes that are none.

    Args:
        state: State after the round.
        domains: Both domains as its backbone sees them.
        config: Configuration of the run. A number of classes that the user gave is kept.
    """
    discovery, num_known = state.discovery, domains.num_known
    if not discovery or not discovery.k_star or config.k or config.novelty != "orphans":
        return state
    logits = infer(state.networks, domains.target)[0].numpy()
    kept = distributed.broadcast_from_main(lambda: kept_outputs(logits, domains.near, num_known))
    if len(kept) == logits.shape[1] or (len(kept) == num_known and config.novel == "yes"):
        return state
    found = without_outputs(discovery, kept, num_known)
    if not found.k_star:
        measured = "the discovered classes lie in the midst of known classes"
        found = replace(found, verdict=Finding(Status.NOTHING_NEW, measured, _MISSED))
    return replace(state, discovery=found, networks=_with_outputs(state.networks, kept))


def _with_labels(found: Discovery, before: Discovery | None, domains: Domains) -> Discovery:
    """Return the discovery with what the labelled images of the target tell, beside K classes."""
    shared, first = domains.shared, domains.first
    if shared is None or first is None:
        return found
    if before is None and domains.num_first < domains.num_known:
        seeds = np.where(first.is_new, shared.labels, -1)
        found = named(found, seeds, first.classes, domains.points[1])
    return with_labelled(found, shared.labels)


def _orphans(
    logits: Points, domains: Domains, config: TrainConfig
) -> tuple[Orphans, Finding | None]:
    """Return the decision about every image, and the verdict if nothing is new."""
    first = domains.first
    # A labelled image of a new class is evidence enough.
    gate = config.novel == "auto" and not config.k and not (first and first.is_new.any())
    given = first.given if first else None
    orphans = find_orphans(domains.compared, logits, gate=gate, given=given, grain=domains.grain)
    if orphans.new.any() or not gate:
        return orphans, None
    return orphans, Finding(Status.NOTHING_NEW, orphans.why_not, _MISSED)


def _with_outputs(networks: Networks, kept: np.ndarray) -> Networks:
    """Return networks whose C has only these outputs."""
    classifier = networks.classifier
    assert isinstance(classifier, nn.Linear)
    smaller = nn.Linear(classifier.in_features, len(kept)).to(networks.device)
    state = {name: tensor[kept] for name, tensor in classifier.state_dict().items()}
    smaller.load_state_dict(state)
    return replace(networks, classifier=smaller)


def _propagated(logits: Points, domains: Domains, config: TrainConfig, given: Ids | None) -> Points:
    """Return the logits after label propagation, (M, C); labelled images are certain.

    Args:
        logits: Logits of the target, (M, C).
        domains: Both domains.
        config: Configuration of the run.
        given: Output of every labelled image, -1 for others, (M,); None for none.
    """
    alpha = config.propagation_alpha
    if given is None:
        return propagate(logits, domains.graph, alpha) if alpha else logits
    logits = certain(logits, given)
    return certain(propagate(logits, domains.graph, alpha), given) if alpha else logits
