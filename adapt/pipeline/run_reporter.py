"""Reports of a run while it trains: progress bar, metrics.jsonl, TensorBoard, warnings."""

import dataclasses
from dataclasses import dataclass, field
from typing import Any

from scda.adapt.config import TrainConfig
from scda.adapt.discovery.counting.estimators import ESTIMATORS
from scda.adapt.discovery.findings import Finding, Status
from scda.adapt.pipeline.events import Events
from scda.adapt.runs.folder import RunFolder
from scda.adapt.runtime.progress import Reporter
from scda.adapt.training.runner import Callbacks
from scda.adapt.training.state import RunState

_LOSSES_EVERY = 50  # steps
_MIN_IMAGES_PER_OUTPUT = 2  # in a batch; below, the class correlation is unreliable


def steps_before(stage: int, config: TrainConfig, num_known: int, num_target: int) -> int:
    """Return the number of steps before a stage.

    Args:
        stage: Number of the stage; 0 is pre-training.
        config: Configuration of the run.
        num_known: Number of known classes, K.
        num_target: Number of target images.
    """
    of_rounds = (stage - 1) * config.steps_of_round(num_target, num_known)
    return config.pretrain_length(num_known) + of_rounds if stage else 0


@dataclass
class RunReporter:
    """Reporter of one run: prints progress and writes the records of its stages."""

    run: RunFolder
    reporter: Reporter
    events: Events
    config: TrainConfig
    num_known: int
    num_target: int
    _stage: int = 0  # number of the current stage
    _k_star: str = ""
    _warned: set[Status] = field(default_factory=set)

    @property
    def callbacks(self) -> Callbacks:
        """The functions that `adapt` calls during the run."""
        return Callbacks(self.on_step, self.on_discovery, self.on_stage, self.on_resume)

    def begin(self) -> None:
        """Report the start of pre-training."""
        if not any(self.run.checkpoints.glob("*.pt")):  # a run that does not resume
            self.run.metrics.unlink(missing_ok=True)
        self._begin(0)

    def on_step(self, step: int, losses: dict[str, float]) -> None:
        """Advance the bar; write the losses of every fiftieth step."""
        numbers = [f"{name} {loss:.3g}" for name, loss in losses.items()]
        self.reporter.done(step, note=", ".join(filter(None, [self._k_star, *numbers])))
        if losses and step % _LOSSES_EVERY == 0:
            record = {"during": self._stage, "step": step, "losses": losses}
            self._write(record, self._steps_before(self._stage) + step)

    def on_discovery(self, stage: int, k_star: int) -> None:
        """Show k* beside the losses of the round."""
        self._k_star = f"k* {k_star}"

    def on_stage(self, state: RunState) -> None:
        """Write the record of a stage, and print its line and its warnings."""
        self._write(_record(state), self._steps_before(state.stage + 1))
        self.reporter.say(_line(state, self.config.rounds))
        for finding in (*state.findings, *_unsteady(state, self.config)):
            self._warn_once(finding)
        if state.stage == 1:
            self._warn_of_small_batch(state)
        self._begin(state.stage + 1)

    def on_resume(self, finished: int, step: int) -> None:
        """Drop the records of the steps that are repeated, and move the bar to the rest.

        Args:
            finished: Number of the last finished stage; -1 for none.
            step: Number of the steps done after it.
        """
        self.run.forget_after(finished, step)
        position = ("the start", "pre-training", f"round {finished}")[min(finished, 1) + 1]
        self.reporter.say(f"resumed after {position}" + (f" and {step} steps" if step else ""))
        self.reporter.skip(self._steps_before(finished + 1))
        self._begin(finished + 1)

    def _begin(self, stage: int) -> None:
        self._stage = stage
        if stage > self.config.rounds:
            return
        name = f"round {stage} of {self.config.rounds}" if stage else "pre-training"
        self.reporter.begin(name, self._steps_before(stage + 1) - self._steps_before(stage))

    def _steps_before(self, stage: int) -> int:
        return steps_before(stage, self.config, self.num_known, self.num_target)

    def _write(self, record: dict[str, Any], step: int) -> None:
        self.run.append(record)
        self.events.add(record, step)

    def _warn_once(self, finding: Finding) -> None:
        if finding.status not in self._warned:
            self.reporter.warn(str(finding))
        self._warned.add(finding.status)

    def _warn_of_small_batch(self, state: RunState) -> None:
        outputs = self.num_known + (state.discovery.k_star if state.discovery else 1)
        expected = _MIN_IMAGES_PER_OUTPUT * outputs
        if self.config.batch_size < expected:
            self.reporter.warn(
                f"--batch-size {self.config.batch_size} is small for {outputs} classes; the class "
                f"correlation is unreliable below {expected}"
            )


def _record(state: RunState) -> dict[str, Any]:
    discovery = state.discovery
    record: dict[str, Any] = {
        "round": state.stage,
        "unknown_share": state.unknown_share,
        "losses": state.losses,
        "seconds": round(state.seconds, 2),
        "skipped": state.skipped,
        "returns": state.restarts,
        "warnings": [str(finding) for finding in state.findings],
    }
    if discovery:
        record |= {
            "k_star": discovery.k_star,
            **{f"k_{name}": discovery.votes.get(name) for name in ESTIMATORS},
            "known_candidates": len(discovery.candidates.known),
            "implicit_candidates": len(discovery.candidates.implicit),
            "curve": discovery.curve and dataclasses.asdict(discovery.curve),
            "notes": [str(finding) for finding in discovery.findings],
        }
    return record


def _line(state: RunState, rounds: int) -> str:
    share = f"{state.unknown_share:.0%} of the target predicted as new"
    if state.discovery is None:
        return f"pre-training: {share}"
    return f"round {state.stage} of {rounds}: k* = {state.discovery.k_star}, {share}"


def _unsteady(state: RunState, config: TrainConfig) -> list[Finding]:
    if not state.skipped and not state.restarts:
        return []
    found = (
        f"{state.skipped} steps without a finite loss were skipped, and training returned to the "
        f"last checkpoint {state.restarts} times"
    )
    return [Finding(Status.UNSTEADY, found, f"use a smaller --lr than {config.lr}")]
