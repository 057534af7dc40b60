"""One stage of a run: trained, stopped by a signal, tried again, reported and saved."""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Generator, Tensor, nn

from scda.adapt.config import TrainConfig
from scda.adapt.data.dataset import Labelled
from scda.adapt.discovery.diagnostics import one_sided_game
from scda.adapt.discovery.discover import Discovery
from scda.adapt.discovery.findings import Finding
from scda.adapt.discovery.propagation import neighbour_graph
from scda.adapt.runtime import distributed
from scda.adapt.runtime.signals import Deferred
from scda.adapt.training import checkpoint
from scda.adapt.training.inputs import Inputs, Pseudo
from scda.adapt.training.loop import Diverged, OnStep, Progress, Stopped, pretrain, retrain
from scda.adapt.training.networks import Networks, infer, refresh_batchnorm

_MOST_RETURNS = 3  # of one stage, to the state before it


@dataclass(frozen=True)
class Stage:
    """What one stage left behind; round 0 is pre-training."""

    round: int
    unknown_share: float  # of the target, predicted as no known class, 0 to 1
    losses: dict[str, float]  # of the last step that was not skipped
    seconds: float  # since it was begun or gone on with
    discovery: Discovery | None  # that the round was trained on
    skipped: int = 0  # steps, for want of a finite loss
    returns: int = 0  # to the state before, for want of several in a row
    findings: tuple[Finding, ...] = ()


OnStage = Callable[[Stage, Networks], None]


def pseudo_labelled(discovery: Discovery, num_known: int) -> Pseudo:
    """Return T_kn and T_im with the labels that Algorithm 1 gave them."""
    candidates = discovery.candidates
    rows = np.concatenate([candidates.known, candidates.implicit])
    labels = np.concatenate([candidates.known_labels, num_known + discovery.implicit_labels])
    return Pseudo(torch.from_numpy(rows), torch.from_numpy(labels))


@dataclass(frozen=True)
class Seen:
    """The target as the backbone of the last stage sees it."""

    target: Tensor  # (M, D_backbone)

    @cached_property
    def graph(self) -> csr_array:
        """Return which images are neighbours."""
        return neighbour_graph(self.target.numpy())


@dataclass(frozen=True)
class Trained:
    """What training made of a stage."""

    round: int
    networks: Networks
    skipped: int  # steps
    returns: int


@dataclass
class Run:
    """What happens around every stage: time, stops and returns, statistics, checkpoint, report."""

    source: Labelled  # as the frozen backbone sees it, for pre-training
    inputs: Inputs  # of the rounds
    seen: Seen
    num_known: int
    config: TrainConfig
    generator: Generator
    checkpoints: Path | None
    on_step: OnStep
    on_discovery: Callable[[int, int], None]
    on_stage: OnStage

    @property
    def target(self) -> Tensor:
        """Return the target as it is seen now, (M, D_backbone)."""
        return self.seen.target

    def look(self, backbone: nn.Module) -> None:
        """See the target with the backbone as a round left it."""
        if self.config.batchnorm == "target":
            self.inputs.refresh_batchnorm(backbone)
        target = self.inputs.target(backbone)
        if target is not self.target:
            self.seen = Seen(target)

    def begin(self) -> None:
        """Start the clock of a stage."""
        self._losses: dict[str, float] = {}
        self._started = time.monotonic()

    def trained(
        self,
        number: int,
        fresh: Callable[[], Networks],
        found: Discovery | None,
        pause: checkpoint.Pause | None,
        stop: Deferred,
    ) -> Trained:
        """Train a stage; where it diverges, again from its beginning, with other batches.

        Args:
            number: Of the stage.
            fresh: Makes the networks it begins with.
            found: What was discovered for it; None is pre-training.
            pause: Where it was stopped.
            stop: Asked after every step.

        Raises:
            Stopped: If a signal arrived; where the stage stood is written by then.
            Diverged: If it diverges once more after the last return.
        """
        returns = pause.returns if pause else 0
        while True:
            networks = pause.networks if pause else fresh()
            distributed.broadcast_weights(networks.modules)
            progress = pause.progress if pause else Progress()
            begun = pause.generator if pause else self.generator.get_state()
            self.generator.set_state(begun)
            try:
                skipped = self._train(networks, found, progress, stop)
                return Trained(number, networks, len(skipped), returns)
            except Stopped as stopped:
                if self.checkpoints:
                    at = stopped.progress
                    pause = checkpoint.Pause(number, networks, found, at, returns, begun)
                    # All wait: the end of one makes torchrun stop the others.
                    distributed.broadcast_from_main(
                        partial(checkpoint.save_pause, self.checkpoints, pause)
                    )
                raise
            except Diverged:
                if returns == _MOST_RETURNS:
                    raise
                returns, pause = returns + 1, None

    def _train(
        self, networks: Networks, found: Discovery | None, progress: Progress, stop: Deferred
    ) -> tuple[int, ...]:
        settings = self.config, self.generator

        def on_step(step: int, losses: dict[str, float]) -> bool:
            self._losses = losses or self._losses
            self.on_step(step, losses)
            return stop.heard()

        if found is None:
            frozen = replace(networks, backbone=nn.Identity())  # its input are features
            return pretrain(frozen, self.source, self.target, *settings, on_step, progress)
        pseudo, labels = pseudo_labelled(found, self.num_known), self.source.labels
        return retrain(networks, self.inputs, labels, pseudo, *settings, on_step, progress)

    def end(
        self, stage: Trained, discovery: Discovery | None, before: checkpoint.State | None
    ) -> checkpoint.State:
        """Take stock of a stage, report it and write its checkpoint."""
        if self.config.batchnorm == "target":
            refresh_batchnorm(stage.networks, self.target)
        predicted = infer(stage.networks, self.target)[0].argmax(dim=1)
        share = (predicted >= self.num_known).float().mean().item()
        findings: tuple[Finding, ...] = ()
        if before and discovery:
            findings = tuple(one_sided_game(before.unknown_share, share, discovery))
        # Reported before it is saved: a resumed run drops what was reported and not saved.
        self.on_stage(
            Stage(
                stage.round,
                share,
                self._losses,
                time.monotonic() - self._started,
                discovery,
                stage.skipped,
                stage.returns,
                findings,
            ),
            stage.networks,
        )
        state = checkpoint.State(stage.round, stage.networks, discovery, share, findings)
        if self.checkpoints and distributed.is_main():
            checkpoint.save(self.checkpoints, state, self.generator)
        return state
