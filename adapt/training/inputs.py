"""What training reads: features of a frozen backbone, or images for one that learns."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from torch import Generator, Tensor, nn

from scda.adapt.training.sampling import Step


@dataclass(frozen=True)
class Pseudo:
    """Target images with pseudo-labels."""

    rows: Tensor  # (P,) of the target
    labels: Tensor  # (P,)


class Inputs(Protocol):
    """Both domains, by row for a training step and as a whole for discovery."""

    @property
    def backbone(self) -> nn.Module:
        """What turns a batch into backbone features; copies of it are trained where it learns."""

    @property
    def num_target(self) -> int:
        """How many images the target has."""

    def batches(
        self, steps: Sequence[Step], generator: Generator, *, done: int = 0
    ) -> Iterator[tuple[Tensor, ...]]:
        """Yield for each step but the first `done` what F reads: source, pseudo, target."""

    def refresh_batchnorm(self, backbone: nn.Module) -> None:
        """Make the backbone's batch statistics, where it learns, those of the whole target."""

    def source(self, backbone: nn.Module) -> Tensor:
        """Return the features of the source, (N, D_backbone), as this backbone sees it."""

    def target(self, backbone: nn.Module) -> Tensor:
        """Return the features of the target, (M, D_backbone), as this backbone sees it."""


class FeatureInputs:
    """A frozen backbone: its features, computed once, are all there is to read."""

    def __init__(self, source: Tensor, target: Tensor) -> None:
        """Keep the features, (N, D_backbone) and (M, D_backbone)."""
        self.backbone = nn.Identity()
        self.num_target = len(target)
        self._source, self._target = source, target

    def batches(
        self, steps: Sequence[Step], generator: Generator, *, done: int = 0
    ) -> Iterator[tuple[Tensor, ...]]:
        """Yield for each step but the first `done` its features: source, pseudo, target."""
        for source, pseudo, target in steps[done:]:
            yield self._source[source], self._target[pseudo], self._target[target]

    def refresh_batchnorm(self, backbone: nn.Module) -> None:
        """Do nothing: a frozen backbone keeps its statistics."""

    def source(self, backbone: nn.Module) -> Tensor:
        """Return the source's features."""
        return self._source

    def target(self, backbone: nn.Module) -> Tensor:
        """Return the target's features."""
        return self._target
