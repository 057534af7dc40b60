"""Algorithm 2: pre-train once, then discover, restructure C and retrain, round after round."""

import copy
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Generator, Tensor, nn

from scda.adapt.config import TrainConfig
from scda.adapt.data.dataset import Labelled
from scda.adapt.data.shared import Shared
from scda.adapt.discovery.diagnostics import one_sided_game
from scda.adapt.discovery.discover import Discovery
from scda.adapt.discovery.findings import Finding, Status
from scda.adapt.discovery.trust.outcome import Outcome
from scda.adapt.runtime import rng
from scda.adapt.runtime.device import select_device
from scda.adapt.training.assessment import outcome_of, run_findings, run_trust
from scda.adapt.training.discovery_step import discover_classes, drop_false_classes
from scda.adapt.training.domains import Domains
from scda.adapt.training.inputs import Inputs, PseudoLabels
from scda.adapt.training.loop import OnStep, Progress, pretrain, retrain
from scda.adapt.training.networks import (
    Networks,
    add_unknown_bias,
    infer_together,
    refresh_batchnorm,
)
from scda.adapt.training.runner import Callbacks, Runner
from scda.adapt.training.state import UNTRAINED, RunState
from scda.models.index import Ids
from scda.models.networks.network import FeatureHead
from scda.models.trust import Trust


@dataclass(frozen=True)
class Adapted:
    """The result of Algorithm 2."""

    networks: Networks  # on the CPU
    discovery: Discovery | None  # of the last round; None without a round
    source: Labelled  # features of the final backbone
    target: Tensor  # (M, D_backbone), the same
    outcome: Outcome  # what trust is measured on
    trust: Trust  # how accurate it is expected to be
    findings: list[Finding]  # what the user should know
    failure: str = ""  # why training ended before the last round


def adapt(
    source: Labelled,
    target: Tensor,
    config: TrainConfig,
    *,
    images: Inputs | None = None,
    anchors: Ids | None = None,
    classifier: nn.Linear | None = None,
    shared: Shared | None = None,
    checkpoints: Path | None = None,
    callbacks: Callbacks | None = None,
) -> Adapted:
    """Return F and C adapted to the target, and the classes discovered in it.

    Args:
        source: Backbone features (N, D_backbone) with labels 0 to K - 1.
        target: Backbone features without labels, (M, D_backbone).
        config: Configuration of the run.
        images: What the rounds train on if the backbone learns; None takes the features.
        anchors: Classes that are to remain classes, (M,): the class of each image, or -1.
        classifier: The classifier of the backbone's pre-training, D_backbone to its classes; None
            if it is not known.
        shared: The images that both domains hold; None for none.
        checkpoints: Folder to resume from and to write the state of every stage to.
        callbacks: Functions to call as the run advances.

    Raises:
        Diverged: If training diverges again and again before a round is finished.
        GateError: If the checkpoints cannot be read.
        UsageError: If the processes of the run do not share their checkpoints.

    Source: SCDA, Algorithm 2.
    """
    rng.seed_all(config.seed)
    domains = Domains(source, target, config, images, anchors, classifier, shared)
    runner = Runner(checkpoints, callbacks or Callbacks())
    state = runner.resume(_untrained(domains, config))
    if state.stage > 0:
        domains.update(state.networks.backbone, refresh_batchnorm=config.batchnorm == "target")

    if state.stage == UNTRAINED:
        state = runner.run(
            state,
            partial(ensemble, state.networks, config, domains),
            partial(_pretrain, domains, config),
            partial(_assess, domains, config, state),
        )
    while state.stage < config.rounds and not runner.failure:
        discovery = runner.discover(partial(discover_classes, state, domains, config))
        state = runner.run(
            state,
            partial(restructure, state.networks, config, domains.num_known + discovery.k_star),
            partial(_retrain, domains, config, discovery),
            partial(_assess, domains, config, state),
            discovery,
        )

    # Added after the last checkpoint, so that a resumed run does not add it twice.
    add_unknown_bias(state.networks, domains.num_known, config.unknown_logit_bias)
    if state.stage > 0 or shared:
        source = replace(source, features=domains.source_features(state.networks.backbone))
    state.networks.modules.cpu()
    outcome = outcome_of(state, source, domains)
    trust = run_trust(outcome)
    findings = run_findings(state, outcome, trust)
    networks = replace(state.networks, head=domains.on_backbone(state.networks.head))
    if runner.failure:
        findings.insert(0, _divergence(state, config))
    target = domains.backbone_target
    return Adapted(
        networks, state.discovery, source, target, outcome, trust, findings, runner.failure
    )


def restructure(networks: Networks, config: TrainConfig, num_outputs: int) -> Networks:
    """Return a copy of F with a new C, so that the stage before can be returned to.

    Args:
        networks: Networks of the stage before.
        config: Configuration of the run.
        num_outputs: Number of outputs of C: K + 1 for pre-training, K + k* for a round.
    """
    classifier = nn.Linear(config.head_widths[-1], num_outputs).to(networks.device)
    alone = replace(networks, others=nn.ModuleList())
    return replace(copy.deepcopy(alone), classifier=classifier)


def ensemble(networks: Networks, config: TrainConfig, domains: Domains) -> Networks:
    """Return a copy of F with a new C, and further pairs with weights of their own.

    The game of pre-training ends differently from other weights; what an ensemble takes for unknown
    depends on them less.

    Args:
        networks: Untrained networks.
        config: Configuration of the run.
        domains: Both domains, whose inputs F takes.
    """
    first = restructure(networks, config, domains.num_first + 1)
    for _ in range(config.ensemble - 1):
        head = FeatureHead(domains.target.shape[1], config.head_widths)
        classifier = nn.Linear(head.width, domains.num_first + 1)
        first.others.append(nn.Sequential(head, classifier))
    first.modules.to(networks.device)
    return first


def pseudo_labelled(discovery: Discovery, num_known: int) -> PseudoLabels:
    """Return T_kn and T_im with the labels that Algorithm 1 gave them."""
    candidates = discovery.candidates
    labels = np.concatenate([candidates.known_labels, num_known + discovery.implicit_labels])
    return PseudoLabels(torch.from_numpy(candidates.rows), torch.from_numpy(labels))


def _untrained(domains: Domains, config: TrainConfig) -> RunState:
    head = FeatureHead(domains.target.shape[1], config.head_widths)
    networks = Networks(head, nn.Identity(), domains.inputs.backbone, config.precision)
    networks.modules.to(select_device(config))
    return RunState(UNTRAINED, networks, Generator().manual_seed(config.seed).get_state())


def _pretrain(
    domains: Domains,
    config: TrainConfig,
    networks: Networks,
    generator: Generator,
    on_step: OnStep,
    progress: Progress,
) -> tuple[int, ...]:
    """Pre-train on the features of the frozen backbone."""
    on_features = replace(networks, backbone=nn.Identity())
    return pretrain(
        on_features, domains.source, domains.target, config, generator, on_step, progress
    )


def _retrain(
    domains: Domains,
    config: TrainConfig,
    discovery: Discovery,
    networks: Networks,
    generator: Generator,
    on_step: OnStep,
    progress: Progress,
) -> tuple[int, ...]:
    """Retrain on the source and the pseudo-labels of a discovery."""
    pseudo, rows = pseudo_labelled(discovery, domains.num_known), domains.own_rows
    return retrain(
        networks,
        domains.inputs,
        domains.labels[rows],
        pseudo,
        config,
        generator,
        on_step,
        progress,
        source_rows=rows,
    )


def _assess(domains: Domains, config: TrainConfig, before: RunState, state: RunState) -> RunState:
    """Return the state of a trained stage with what its networks make of the target."""
    of_target = config.batchnorm == "target"
    if state.stage:  # pre-training leaves the backbone unchanged
        domains.update(state.networks.backbone, refresh_batchnorm=of_target)
    if of_target:
        refresh_batchnorm(state.networks, domains.target)
    state = drop_false_classes(state, domains, config)
    predicted = infer_together(state.networks, domains.target)[0].argmax(dim=1)
    if state.stage == 0 and domains.first:
        predicted = domains.first.predicted(predicted, domains.num_known)
    share = (predicted >= domains.num_known).float().mean().item()
    discovery = state.discovery
    findings = one_sided_game(before.unknown_share, share, discovery) if discovery else []
    return replace(state, predicted=predicted, unknown_share=share, findings=tuple(findings))


def _divergence(state: RunState, config: TrainConfig) -> Finding:
    found = f"round {state.stage + 1} diverged, so the bundle is that of round {state.stage}"
    return Finding(Status.DIVERGED, found, f"use a smaller --lr than {config.lr}")
