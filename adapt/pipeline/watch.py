"""What a run says and writes while it adapts: the bar, metrics.jsonl, TensorBoard, warnings."""

import dataclasses
from dataclasses import dataclass, field
from typing import Any

from scda.adapt.config import TrainConfig
from scda.adapt.discovery.estimators import ESTIMATORS
from scda.adapt.discovery.findings import Finding, Status
from scda.adapt.pipeline.events import Events
from scda.adapt.runs.folder import RunFolder
from scda.adapt.runtime.progress import Reporter
from scda.adapt.training.networks import Networks
from scda.adapt.training.runner import Stage

_LOSSES_EVERY = 50  # steps
_IMAGES_PER_OUTPUT = 2  # in a batch, for a class correlation that means something


def steps_before(stage: int, config: TrainConfig, num_known: int, num_target: int) -> int:
    """Return how many steps come before a stage; 0 is pre-training."""
    of_rounds = (stage - 1) * config.round_length(num_target)
    return config.pretrain_length(num_known) + of_rounds if stage else 0


@dataclass
class Watch:
    """The listener of one run; its methods are what `adapt` calls."""

    run: RunFolder
    reporter: Reporter
    events: Events
    config: TrainConfig
    num_known: int
    num_target: int
    _stage: int = 0  # under way
    _k_star: str = ""
    _warned: set[Status] = field(default_factory=set)

    def begin(self) -> None:
        """Start with pre-training."""
        if not any(self.run.checkpoints.glob("*.pt")):  # nothing to go on from: nothing to add to
            self.run.metrics.unlink(missing_ok=True)
        self._begin(0)

    def on_step(self, step: int, losses: dict[str, float]) -> None:
        """Move the bar; write losses every now and then."""
        numbers = [f"{name} {loss:.3g}" for name, loss in losses.items()]
        self.reporter.done(step, note=", ".join(filter(None, [self._k_star, *numbers])))
        if losses and step % _LOSSES_EVERY == 0:
            record = {"during": self._stage, "step": step, "losses": losses}
            self._write(record, self._steps_before(self._stage) + step)

    def on_discovery(self, round_number: int, k_star: int) -> None:
        """Show k* beside the losses that are to follow."""
        self._k_star = f"k* {k_star}"

    def on_stage(self, stage: Stage, networks: Networks) -> None:
        """Write and say what a stage gave."""
        self._write(_record(stage), self._steps_before(stage.round + 1))
        self.reporter.say(_line(stage, self.config.rounds))
        for finding in (*stage.findings, *_unsteady(stage, self.config)):
            self._warn_once(finding)
        if stage.round == 1:
            self._warn_of_small_batch(stage)
        self._begin(stage.round + 1)

    def on_resume(self, finished: int, step: int) -> None:
        """Go on where a stopped run stood."""
        self.run.forget_after(finished, step)
        stood = ("the start", "pre-training", f"round {finished}")[min(finished, 1) + 1]
        self.reporter.say(f"resumed after {stood}" + (f" and {step} steps" if step else ""))
        self.reporter.skip(self._steps_before(finished + 1))
        self._begin(finished + 1)

    def _begin(self, number: int) -> None:
        self._stage = number
        if number > self.config.rounds:
            return
        name = f"round {number} of {self.config.rounds}" if number else "pre-training"
        self.reporter.begin(name, self._steps_before(number + 1) - self._steps_before(number))

    def _steps_before(self, stage: int) -> int:
        return steps_before(stage, self.config, self.num_known, self.num_target)

    def _write(self, record: dict[str, Any], step: int) -> None:
        self.run.append(record)
        self.events.add(record, step)

    def _warn_once(self, finding: Finding) -> None:
        if finding.status not in self._warned:
            self.reporter.warn(str(finding))
        self._warned.add(finding.status)

    def _warn_of_small_batch(self, stage: Stage) -> None:
        outputs = self.num_known + (stage.discovery.k_star if stage.discovery else 1)
        wanted = _IMAGES_PER_OUTPUT * outputs
        if self.config.batch_size < wanted:
            self.reporter.warn(
                f"--batch-size {self.config.batch_size} is small for {outputs} classes: "
                f"the class correlation is rough below {wanted}"
            )


def _record(stage: Stage) -> dict[str, Any]:
    discovery = stage.discovery
    record: dict[str, Any] = {
        "round": stage.round,
        "unknown_share": stage.unknown_share,
        "losses": stage.losses,
        "seconds": round(stage.seconds, 2),
        "skipped": stage.skipped,
        "returns": stage.returns,
        "warnings": [str(finding) for finding in stage.findings],
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


def _line(stage: Stage, rounds: int) -> str:
    share = f"{stage.unknown_share:.0%} of the target called new"
    if stage.discovery is None:
        return f"pre-trained: {share}"
    return f"round {stage.round} of {rounds}: k* = {stage.discovery.k_star}, {share}"


def _unsteady(stage: Stage, config: TrainConfig) -> list[Finding]:
    if not stage.skipped and not stage.returns:
        return []
    found = (
        f"{stage.skipped} steps without a finite loss were skipped, and training returned to the "
        f"last checkpoint {stage.returns} times"
    )
    return [Finding(Status.UNSTEADY, found, f"use a smaller --lr than {config.lr}")]
