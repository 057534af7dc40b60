"""The state of a run, which is saved, loaded and handed from stage to stage."""

from dataclasses import dataclass, field

from torch import Tensor

from scda.adapt.discovery.discover import Discovery
from scda.adapt.discovery.findings import Finding
from scda.adapt.training.loop import Progress
from scda.adapt.training.networks import Networks

UNTRAINED = -1  # the stage of a run that has not begun


@dataclass(frozen=True)
class RunState:
    """A run after a stage, or inside one: stage 0 is pre-training, stage n is round n.

    There is no optimiser between stages: each stage starts a new one.
    """

    stage: int
    networks: Networks
    generator: Tensor  # of the batches: after the stage, or, inside it, before its first step
    discovery: Discovery | None = None  # classes that the stage trains; None in pre-training
    progress: Progress | None = None  # position inside the stage; None after it
    skipped: int = 0  # steps of the stage without a finite loss
    restarts: int = 0  # of the stage, from the state before it, because it diverged
    unknown_share: float = 0.0  # of the target, predicted as no known class, 0 to 1
    losses: dict[str, float] = field(default_factory=dict)  # of the last step with a finite loss
    seconds: float = 0.0  # since the stage was begun or resumed
    findings: tuple[Finding, ...] = ()  # of the stage
