"""The discovery step of a round: Algorithm 1, or the closed round (choice 22b)."""

from dataclasses import replace

import numpy as np

from scda.adapt.config import TrainConfig
from scda.adapt.data.dataset import Labelled
from scda.adapt.discovery import diagnostics, novelty
from scda.adapt.discovery.discover import Discovery, cluster_candidates, discover, match_to_previous
from scda.adapt.discovery.findings import Finding
from scda.adapt.discovery.kmeans import Points
from scda.adapt.discovery.propagation import propagate
from scda.adapt.runtime import distributed
from scda.adapt.training.domains import Domains
from scda.adapt.training.networks import Networks, infer
from scda.adapt.training.state import RunState


def discover_classes(state: RunState, domains: Domains, config: TrainConfig) -> Discovery:
    """Return the discovery with the networks of the last stage.

    Args:
        state: State after the last stage.
        domains: Both domains as its backbone sees them.
        config: Configuration of the run.

    Source: SCDA, Algorithm 1.
    """
    logits, features = (tensor.numpy() for tensor in infer(state.networks, domains.target))
    before, backbone, num_known = state.discovery, domains.target.numpy(), domains.num_known
    if not novelty.expects_new_classes(before, logits, num_known, config):
        predicted = _propagated(logits, domains, config).argmax(axis=1)
        suspects = before.suspects if before else np.flatnonzero(predicted >= num_known)
        known_logits = _propagated(logits[:, :num_known], domains, config)
        return novelty.closed_round(known_logits, before, suspects)
    smooth = _propagated(logits, domains, config)
    if before and len(before.suspects):
        candidates = novelty.suspect_candidates(before, smooth)
        found = cluster_candidates(
            candidates, features, backbone, num_known=num_known, config=config
        )
    else:
        found = discover(smooth, features, backbone, num_known=num_known, config=config)
    if before:
        found = replace(found, verdict=before.verdict, k_path=before.k_path)
    return match_to_previous(replace(found, k_path=(*found.k_path, found.k_star)), before)


def judge_closed_round(
    discovery: Discovery, networks: Networks, domains: Domains, config: TrainConfig
) -> Discovery:
    """Return the discovery of round 1; after a closed round, with its verdict on new classes.

    Args:
        discovery: Discovery that the round trained.
        networks: Networks that the round trained.
        domains: Both domains as its backbone sees them.
        config: Configuration of the run.
    """
    if config.novel != "auto" or discovery.k_star or config.k:
        return discovery
    logits, target = infer(networks, domains.target)[0].numpy(), domains.target.numpy()
    return distributed.broadcast_from_main(
        lambda: novelty.judge_closed_round(
            discovery, logits, target, domains.graph, domains.num_known
        )
    )


def run_findings(state: RunState, source: Labelled, domains: Domains) -> list[Finding]:
    """Return what the user should know at the end of a run.

    Args:
        state: State after the last stage.
        source: The source as the final backbone sees it.
        domains: Both domains, the target as the final backbone sees it.
    """
    discovery = state.discovery
    at_the_end = diagnostics.diagnose(
        source=source.features.numpy(),
        source_labels=source.labels.numpy(),
        target=domains.target.numpy(),
        predicted=infer(state.networks, domains.target)[0].argmax(dim=1).numpy(),
        num_known=domains.num_known,
        discovery=discovery,
    )
    verdict = [discovery.verdict] if discovery and discovery.verdict else []
    of_discovery = discovery.findings if discovery else ()
    return [*verdict, *of_discovery, *at_the_end, *state.findings]


def _propagated(logits: Points, domains: Domains, config: TrainConfig) -> Points:
    alpha = config.propagation_alpha
    return propagate(logits, domains.graph, alpha) if alpha else logits
