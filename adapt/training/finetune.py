"""Fine-tuning: a backbone with learning layers, trained on images instead of features."""

import copy
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Self

import torch
from torch import Generator, Tensor, nn

from scda.adapt.data.image_files import Images
from scda.adapt.runtime import distributed
from scda.adapt.training.image_batches import AugmentedBatches, preprocessed_batches
from scda.adapt.training.sampling import Step
from scda.models.networks.backbones import Backbone
from scda.models.networks.network import PixelBackbone
from scda.models.networks.statistics import gathering

_BATCH = 32  # images of an inference pass


class TunedBackbone(PixelBackbone):
    """A backbone with learning layers; the others keep their weights and batch statistics.

    Layers before the first learning one need no gradient, so nothing is kept for a backward pass
    through them. In training each of several processes sees its shard of a batch, and all get the
    features of the whole batch.
    """

    def __init__(self, backbone: Backbone, layers: str) -> None:
        """Choose the learning layers.

        Args:
            backbone: Backbone to train; a copy of its network learns, perhaps on another device.
            layers: Layers that learn: the `last` stage or `all`.
        """
        super().__init__(replace(backbone, network=copy.deepcopy(backbone.network)))
        for name, weight in self.network.named_parameters():
            weight.requires_grad_(layers == "all" or name in backbone.last_stage)
        # (N, H, W, 3) pixels are channels-last already: with such weights nothing is reordered.
        self.to(memory_format=torch.channels_last)
        self._gathers = False
        self._learning = [layer for layer in self.network.modules() if _is_learning(layer)]

    def train(self, mode: bool = True) -> Self:
        """Let only the learning layers use the statistics of the batch (choice 21)."""
        super().train(False)
        self._gathers = mode
        for layer in self._learning:
            layer.training = mode
        return self

    def forward(self, pixels: Tensor) -> Tensor:
        """Return the backbone's features, (N, D_backbone)."""
        features = super().forward(pixels)
        return distributed.all_gather_rows(features) if self._gathers else features

    @torch.no_grad()
    def refresh_batchnorm(self, batches: Iterable[Tensor]) -> None:
        """Set the stored statistics of the learning layers to those of the batches.

        Args:
            batches: Pixels, (B, H, W, 3); each batch is a sample of the whole domain. Each of
                several processes has some of them.
        """
        self.eval()  # numbers of batches differ between processes: no pass gathers features
        with gathering([layer for layer in self._learning if isinstance(layer, nn.BatchNorm2d)]):
            seen = [len(self(pixels.to(self.mean.device))) for pixels in batches]
            distributed.average_statistics(self, weight=len(seen))

    @torch.no_grad()
    def features(self, batches: Iterable[Tensor]) -> Tensor:
        """Return the current features of all images, (N, D_backbone), on the CPU.

        Args:
            batches: Pixels, (B, H, W, 3). Each of several processes has some of them, in order.
        """
        self.eval()
        own = torch.cat([self(pixels.to(self.mean.device)).float().cpu() for pixels in batches])
        return distributed.all_gather_rows(own)


def trained_backbone(backbone: Backbone, trained: nn.Module) -> Backbone:
    """Return the backbone with its trained network; unchanged if it was frozen."""
    if not isinstance(trained, TunedBackbone):
        return backbone
    return replace(backbone, network=trained.network)


def _is_learning(layer: nn.Module) -> bool:
    return any(weight.requires_grad for weight in layer.parameters(recurse=False))


class ImageInputs:
    """Inputs from image files: random views for training, and whole domains in one pass."""

    def __init__(
        self,
        backbone: Backbone,
        source: Images,
        target: Images,
        *,
        layers: str,
        workers: int,
        pinned: bool = False,
    ) -> None:
        """Create the inputs; worker processes start with the first batch.

        Args:
            backbone: Backbone to train.
            source: Source files in the order of the source labels.
            target: Target files in the order of the target features.
            layers: Layers that learn: the `last` stage or `all`.
            workers: Number of processes that decode; 0 decodes in this one.
            pinned: Whether views are made in memory from which a GPU copies them faster.
        """
        self.backbone = TunedBackbone(backbone, layers)
        self.num_target = len(target.paths)
        self._source, self._target = source, target
        self._preprocessing = backbone.preprocessing
        self._workers = workers
        self._augmented = AugmentedBatches(
            source, target, self._preprocessing, workers=workers, pinned=pinned
        )

    def batches(
        self, steps: Sequence[Step], generator: Generator, *, done: int = 0
    ) -> Iterator[tuple[Tensor, ...]]:
        """Yield for each step after the first `done` its views: source, pseudo, target."""
        return self._augmented.batches(steps, generator, done=done)

    def refresh_batchnorm(self, backbone: nn.Module) -> None:
        """Set the batch statistics of learning layers to those of the whole target."""
        assert isinstance(backbone, TunedBackbone)
        parts = max(math.ceil(self.num_target / _BATCH), distributed.world_size())
        order = [range(part, self.num_target, parts) for part in range(parts)]
        backbone.refresh_batchnorm(self._preprocessed(self._target, order))

    def source_features(self, backbone: nn.Module) -> Tensor:
        """Return the backbone's features of the source, (N, D_backbone)."""
        return self._features(self._source, backbone)

    def target_features(self, backbone: nn.Module) -> Tensor:
        """Return the backbone's features of the target, (M, D_backbone)."""
        return self._features(self._target, backbone)

    def _features(self, images: Images, backbone: nn.Module) -> Tensor:
        assert isinstance(backbone, TunedBackbone)
        count = len(images.paths)
        size = max(1, min(_BATCH, count // distributed.world_size()))
        order = [range(start, min(start + size, count)) for start in range(0, count, size)]
        return backbone.features(self._preprocessed(images, order))

    def _preprocessed(self, images: Images, order: Sequence[Sequence[int]]) -> Iterator[Tensor]:
        own = distributed.shard(order)
        return preprocessed_batches(images, own, self._preprocessing, workers=self._workers)
