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
    generator: Tensor  # state of the batch generator: after the stage; inside it, before step 1
    discovery: Discovery | None = None  # classes that the stage trains; None in pre-training
    progress: Progress | None = None  # position inside the stage; None after it
    skipped: int = 0  # steps of the stage without a finite loss
    restarts: int = 0  # restarts of the stage after it diverged
    predicted: Tensor | None = None  # (M,) outputs for the target after the stage; None inside it
    unknown_share: float = 0.0  # share of the target predicted as no known class, 0 to 1
    losses: dict[str, float] = field(default_factory=dict)  # losses of the last finite step
    seconds: float = 0.0  # time since the stage was begun or resumed
    findings: tuple[Finding, ...] = ()  # findings of the stage
