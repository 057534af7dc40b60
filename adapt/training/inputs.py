"""The inputs of training: features of a frozen backbone, or images if the backbone learns."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from torch import Generator, Tensor, nn

from scda.adapt.training.sampling import Step


@dataclass(frozen=True)
class PseudoLabels:
    """Target images with pseudo-labels."""

    rows: Tensor  # (P,), rows of the target
    labels: Tensor  # (P,), 0 to K + k* - 1


class Inputs(Protocol):
    """Both domains: by row for a training step, and as a whole for discovery."""

    @property
    def backbone(self) -> nn.Module:
        """The module that maps a batch to backbone features; copies of it are trained."""
        ...

    @property
    def num_target(self) -> int:
        """The number of target images."""
        ...

    def batches(
        self, steps: Sequence[Step], generator: Generator, *, done: int = 0
    ) -> Iterator[tuple[Tensor, ...]]:
        """Yield for each step after the first `done` the inputs of F: source, pseudo, target."""
        ...

    def refresh_batchnorm(self, backbone: nn.Module) -> None:
        """Set the batch statistics of learning layers to those of the whole target."""
        ...

    def source_features(self, backbone: nn.Module) -> Tensor:
        """Return the backbone's features of the source, (N, D_backbone)."""
        ...

    def target_features(self, backbone: nn.Module) -> Tensor:
        """Return the backbone's features of the target, (M, D_backbone)."""
        ...


class FeatureInputs:
    """Inputs from a frozen backbone: features that are computed once."""

    def __init__(self, source: Tensor, target: Tensor) -> None:
        """Keep the features.

        Args:
            source: Features of the source, (N, D_backbone).
            target: Features of the target, (M, D_backbone).
        """
        self.backbone = nn.Identity()
        self.num_target = len(target)
        self._source, self._target = source, target

    def batches(
        self, steps: Sequence[Step], generator: Generator, *, done: int = 0
    ) -> Iterator[tuple[Tensor, ...]]:
        """Yield for each step after the first `done` its features: source, pseudo, target."""
        for source, pseudo, target in steps[done:]:
            yield self._source[source], self._target[pseudo], self._target[target]

    def refresh_batchnorm(self, backbone: nn.Module) -> None:
        """Do nothing: a frozen backbone keeps its statistics."""

    def source_features(self, backbone: nn.Module) -> Tensor:
        """Return the source's features, (N, D_backbone)."""
        return self._source

    def target_features(self, backbone: nn.Module) -> Tensor:
        """Return the target's features, (M, D_backbone)."""
        return self._target
