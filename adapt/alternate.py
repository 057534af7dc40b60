"""Algorithm 2: pre-train once, then discover, restructure C and retrain, round after round."""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Generator, Tensor, nn

from scda.adapt import checkpoint, novelty, trust
from scda.adapt.config import TrainConfig
from scda.adapt.device import chosen_device
from scda.adapt.discover import Discovery, aligned, discover, divide
from scda.adapt.inputs import FeatureInputs, Inputs
from scda.adapt.kmeans import Points
from scda.adapt.propagate import neighbourhood, propagated
from scda.adapt.train import (
    Labelled,
    Networks,
    OnStep,
    Pseudo,
    infer,
    pretrain,
    refresh_batchnorm,
    retrain,
)
from scda.models.network import FeatureHead


@dataclass(frozen=True)
class Stage:
    """What one stage left behind; round 0 is pre-training."""

    round: int
    unknown_share: float  # of the target, predicted as no known class, 0 to 1
    losses: dict[str, float]  # of the last step
    seconds: float
    discovery: Discovery | None  # that the round was trained on


@dataclass(frozen=True)
class Adapted:
    """The end of Algorithm 2."""

    networks: Networks
    discovery: Discovery | None  # of the last round; None without a round
    notes: list[str]  # `status: explanation`, what the user should know
    source: Labelled  # as the backbone sees it at the end
    target: Tensor  # (M, D_backbone), the same


OnStage = Callable[[Stage, Networks], None]


def adapt(
    source: Labelled,
    target: Tensor,
    config: TrainConfig,
    *,
    images: Inputs | None = None,
    checkpoints: Path | None = None,
    on_step: OnStep = lambda step, losses: None,
    on_stage: OnStage = lambda stage, networks: None,
    on_resume: Callable[[int], None] = lambda round_number: None,
) -> Adapted:
    """Return F and C adapted to the target, and what was discovered in it.

    Args:
        source: Backbone features (N, D_backbone) with labels 0 to K - 1.
        target: (M, D_backbone), without labels.
        config: Of the run.
        images: What the rounds train on where the backbone learns; None takes the features.
        checkpoints: Folder to go on from, and to leave the state of every stage in.
        on_step: Called after every optimiser step with the losses by name.
        on_stage: Called after pre-training and after every round.
        on_resume: Called with the last finished round where there was a checkpoint.

    Source: SCDA, Algorithm 2.
    """
    torch.manual_seed(config.seed)
    generator = Generator().manual_seed(config.seed)
    device = chosen_device(config)
    num_known = int(source.labels.max()) + 1
    head = FeatureHead(target.shape[1], config.head_widths)
    inputs = images or FeatureInputs(source.features, target)
    run = _Run(inputs, _Seen(target), num_known, config, generator, checkpoints, on_step, on_stage)

    def with_outputs(count: int) -> Networks:
        classifier = nn.Linear(head.width, count)
        networks = Networks(head, classifier, inputs.backbone, config.precision)
        networks.modules.to(device)
        return networks

    state = None
    if checkpoints:
        state = checkpoint.load(checkpoints, head, generator, backbone=inputs.backbone)
    if state is not None:
        on_resume(state.round)
        state.networks.modules.to(device)
        run.look(state.round)
    else:
        networks = with_outputs(num_known + 1)
        run.begin()
        frozen = replace(networks, backbone=nn.Identity())  # its input are features
        pretrain(frozen, source, target, config, generator, run.step)
        state = run.end(0, networks, None)

    for round_number in range(state.round + 1, config.iterations + 1):
        run.begin()
        found = _discover(state, run)
        networks = with_outputs(num_known + found.k_star)
        pseudo = pseudo_labelled(found, num_known)
        retrain(networks, inputs, source.labels, pseudo, config, generator, run.step)
        run.look(round_number)
        if round_number == 1 and config.novel == "auto" and not (found.k_star or config.k):
            logits = infer(networks, run.target)[0].numpy()
            found = novelty.judged(found, logits, run.target.numpy(), run.graph, num_known)
        state = run.end(round_number, networks, found)
    _reject_more(state.networks.classifier, num_known, config.rejection)
    state.networks.modules.cpu()
    seen = Labelled(inputs.source(), source.labels) if state.round else source
    return Adapted(state.networks, state.discovery, _notes(state, seen, run), seen, run.target)


def pseudo_labelled(discovery: Discovery, num_known: int) -> Pseudo:
    """Return T_kn and T_im with the labels that Algorithm 1 gave them."""
    candidates = discovery.candidates
    rows = np.concatenate([candidates.known, candidates.implicit])
    labels = np.concatenate([candidates.known_labels, num_known + discovery.implicit_labels])
    return Pseudo(torch.from_numpy(rows), torch.from_numpy(labels))


@torch.no_grad()
def _reject_more(classifier: nn.Module, num_known: int, nats: float) -> None:
    """Add to the logits of everything new; after the last checkpoint, so that it counts once."""
    assert isinstance(classifier, nn.Linear)
    classifier.bias[num_known:] += nats


def _notes(state: checkpoint.State, source: Labelled, run: "_Run") -> list[str]:
    found = state.discovery
    warnings = trust.warnings(
        source=source.features.numpy(),
        source_labels=source.labels.numpy(),
        target=run.target.numpy(),
        predicted=infer(state.networks, run.target)[0].argmax(dim=1).numpy(),
        num_known=run.num_known,
        discovery=found,
    )
    of_discovery = [note for note in (found.verdict, *found.notes) if note] if found else []
    return of_discovery + warnings


def _discover(state: checkpoint.State, run: "_Run") -> Discovery:
    """Algorithm 1 for the state of the last stage, or the closed round of choice 22b."""
    logits, features = (tensor.numpy() for tensor in infer(state.networks, run.target))
    before, backbone, num_known = state.discovery, run.target.numpy(), run.num_known
    if not _anything_new(state, logits, num_known, run.config):
        called_new = np.flatnonzero(_spread(logits, run).argmax(axis=1) >= num_known)
        suspects = before.suspects if before else called_new
        return novelty.closed(_spread(logits[:, :num_known], run), before, suspects)
    if before and len(before.suspects):
        candidates = novelty.among_suspects(before, _spread(logits, run))
        found = divide(candidates, features, backbone, num_known=num_known, config=run.config)
    else:
        found = discover(
            _spread(logits, run), features, backbone, num_known=num_known, config=run.config
        )
    if before:
        found = replace(found, verdict=before.verdict, k_path=before.k_path)
    return aligned(replace(found, k_path=(*found.k_path, found.k_star)), before)


def _spread(logits: Points, run: "_Run") -> Points:
    reach = run.config.propagation
    return propagated(logits, run.graph, reach) if reach else logits


def _anything_new(
    state: checkpoint.State, logits: Points, num_known: int, config: TrainConfig
) -> bool:
    if config.k or config.novel != "auto":  # who gives their number says that there are some
        return config.novel != "no"
    if state.discovery is not None:  # decided in the first round
        return state.discovery.k_star > 0 or len(state.discovery.suspects) > 0
    return bool((logits.argmax(axis=1) >= num_known).mean() > novelty.SURE_SHARE)


@dataclass(frozen=True)
class _Seen:
    """The target's backbone features, and which images are neighbours in them."""

    target: Tensor

    @cached_property
    def graph(self) -> csr_array:
        return neighbourhood(self.target.numpy())


@dataclass
class _Run:
    """What happens around every stage: time, batch statistics, checkpoint, report."""

    inputs: Inputs
    seen: _Seen
    num_known: int
    config: TrainConfig
    generator: Generator
    checkpoints: Path | None
    on_step: OnStep
    on_stage: OnStage

    @property
    def target(self) -> Tensor:
        return self.seen.target

    @property
    def graph(self) -> csr_array:
        return self.seen.graph

    def look(self, round_number: int) -> None:
        """See the target with the backbone as this round left it; pre-training changed nothing."""
        if not round_number:
            return
        if self.config.batchnorm == "target":
            self.inputs.refresh_batchnorm()
        target = self.inputs.target()
        if target is not self.target:
            self.seen = _Seen(target)

    def begin(self) -> None:
        self._losses: dict[str, float] = {}
        self._started = time.monotonic()

    def step(self, step: int, losses: dict[str, float]) -> None:
        self._losses = losses
        self.on_step(step, losses)

    def end(
        self, round_number: int, networks: Networks, discovery: Discovery | None
    ) -> checkpoint.State:
        if self.config.batchnorm == "target":
            refresh_batchnorm(networks, self.target)
        predicted = infer(networks, self.target)[0].argmax(dim=1)
        share = (predicted >= self.num_known).float().mean().item()
        seconds = time.monotonic() - self._started
        # Reported before it is saved: a resumed run drops what was reported and not saved.
        self.on_stage(Stage(round_number, share, self._losses, seconds, discovery), networks)
        state = checkpoint.State(round_number, networks, discovery)
        if self.checkpoints:
            checkpoint.save(self.checkpoints, state, self.generator)
        return state
