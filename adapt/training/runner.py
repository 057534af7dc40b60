"""The runner of stages: checkpoints, signals, restarts after divergence, reports."""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Protocol

from torch import Generator

from scda.adapt.discovery.discover import Discovery
from scda.adapt.runtime import distributed
from scda.adapt.runtime.signals import DeferredSignals
from scda.adapt.training import checkpoint
from scda.adapt.training.loop import Diverged, OnStep, Progress, Stopped
from scda.adapt.training.networks import Networks
from scda.adapt.training.state import RunState
from scda.models.errors import UsageError

_MAX_RESTARTS = 3  # largest number of restarts of a stage


@dataclass(frozen=True)
class Callbacks:
    """Functions that a run calls as it advances.

    Attributes:
        on_step: Called after every optimiser step with its number and the losses by name.
        on_discovery: Called before a round is trained with its number and k*.
        on_stage: Called after pre-training and after every round with the state.
        on_resume: Called if there was a checkpoint with the last finished stage, -1 for none, and
            the steps done of the one after it.
    """

    on_step: Callable[[int, dict[str, float]], object] = lambda step, losses: None
    on_discovery: Callable[[int, int], object] = lambda stage, k_star: None
    on_stage: Callable[[RunState], object] = lambda state: None
    on_resume: Callable[[int, int], object] = lambda stage, step: None


class Train(Protocol):
    """Train networks in place, and return the steps that were skipped."""

    def __call__(
        self, networks: Networks, generator: Generator, on_step: OnStep, progress: Progress
    ) -> tuple[int, ...]:
        """Train from `progress` on.

        Raises:
            Stopped: If `on_step` returns a true value.
            Diverged: If the losses or the weights are not finite.
        """
        ...


class Runner:
    """Runs the stages of a run; every one can be stopped, resumed and repeated.

    Attributes:
        failure: Reason why a stage after round 1 could not be finished; empty if there is none.
    """

    def __init__(self, checkpoints: Path | None, callbacks: Callbacks) -> None:
        """Create a runner.

        Args:
            checkpoints: Folder to resume from and to write the state of every stage to.
            callbacks: Functions to call as the run advances.
        """
        self.failure = ""
        self._checkpoints, self._callbacks = checkpoints, callbacks
        self._generator = Generator()
        self._paused: RunState | None = None
        self._losses: dict[str, float] = {}
        self._started = time.monotonic()

    def resume(self, start: RunState) -> RunState:
        """Return the state after the last finished stage; without a checkpoint this is `start`.

        Raises:
            UsageError: If the processes of the run do not share their checkpoints.
            GateError: If the checkpoints cannot be read.
        """
        state, folder = start, self._checkpoints
        if folder:
            state = checkpoint.load(folder, start.networks) or start
            self._paused = checkpoint.load_paused(folder, start.networks, state.stage + 1)
        paused_at = self._paused.progress if self._paused else None
        position = (state.stage, paused_at.step if paused_at else 0)
        if set(distributed.all_gather_object(position)) != {position}:
            raise UsageError(
                f"{folder}: other processes find other checkpoints there; "
                "use an --out on a disk that all machines share"
            )
        if state is not start or self._paused:
            self._callbacks.on_resume(*position)
        self._generator.set_state(state.generator)
        return state

    def discover(self, step: Callable[[], Discovery]) -> Discovery:
        """Return what `step` discovers in rank 0, or what the stopped stage was training."""
        if self._paused and self._paused.discovery:
            return self._paused.discovery
        return distributed.broadcast_from_main(step)

    def run(
        self,
        before: RunState,
        build: Callable[[], Networks],
        train: Train,
        assess: Callable[[RunState], RunState],
        discovery: Discovery | None = None,
    ) -> RunState:
        """Run the stage after `before`, report it and write its checkpoint.

        Args:
            before: State after the last stage.
            build: Returns the networks that the stage starts with.
            train: Trains them.
            assess: Adds to the state of the trained stage what its networks make of the target.
            discovery: Classes that the stage trains.

        Returns:
            The new state; `before` if the stage diverges even after the last restart.

        Raises:
            Diverged: If no round was finished before.
            KeyboardInterrupt: If SIGINT arrived; the state is saved.
            Terminated: If SIGTERM arrived; the state is saved.
        """
        self._losses = {}
        stage = replace(before, stage=before.stage + 1, discovery=discovery, restarts=0)
        if discovery:
            self._callbacks.on_discovery(stage.stage, discovery.k_star)
        with DeferredSignals(distributed.all_reduce_max) as signals:
            try:
                trained = self._train(stage, build, train, signals)
            except Diverged as error:
                self._fail(before, error)
                return before
            assessed = assess(trained)
            seconds = time.monotonic() - self._started
            state = replace(assessed, losses=self._losses, seconds=seconds)
            # Reported before it is saved: a resumed run drops what was reported and not saved.
            self._callbacks.on_stage(state)
            if self._checkpoints and distributed.is_main():
                checkpoint.save(self._checkpoints, state)
        self._started = time.monotonic()  # of the next stage, its discovery included
        return state

    def _train(
        self,
        stage: RunState,
        build: Callable[[], Networks],
        train: Train,
        signals: DeferredSignals,
    ) -> RunState:
        """Train a stage; if it diverges, train it again from its start, on other batches."""
        start, self._paused = self._paused or self._begin(stage, build), None
        while True:
            try:
                return self._attempt(start, train, signals)
            except Diverged:
                if start.restarts == _MAX_RESTARTS:
                    raise
                start = replace(self._begin(stage, build), restarts=start.restarts + 1)

    def _begin(self, stage: RunState, build: Callable[[], Networks]) -> RunState:
        return replace(stage, networks=build(), generator=self._generator.get_state())

    def _attempt(self, start: RunState, train: Train, signals: DeferredSignals) -> RunState:
        def on_step(step: int, losses: dict[str, float]) -> bool:
            self._losses = losses or self._losses
            self._callbacks.on_step(step, losses)
            return signals.received()

        distributed.broadcast_weights(start.networks.modules)
        self._generator.set_state(start.generator)
        try:
            progress = start.progress or Progress()
            skipped = train(start.networks, self._generator, on_step, progress)
        except Stopped as stopped:
            self._pause(replace(start, progress=stopped.progress))
            raise
        end = self._generator.get_state()
        return replace(start, generator=end, progress=None, skipped=len(skipped))

    def _pause(self, state: RunState) -> None:
        if self._checkpoints:
            # All processes wait: when one ends, torchrun stops the others.
            distributed.broadcast_from_main(partial(checkpoint.save, self._checkpoints, state))

    def _fail(self, before: RunState, error: Diverged) -> None:
        if before.stage < 1:
            raise Diverged(f"{error}; no round was finished, so there is no bundle") from None
        self.failure = (
            f"round {before.stage + 1}: {error}; the bundle is that of round {before.stage}"
        )
