"""Fine-tuning: a backbone of which some layers learn, fed with images instead of features."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Self

import torch
from torch import Generator, Tensor, nn

from scda.adapt.data.image_files import Images
from scda.adapt.runtime import distributed
from scda.adapt.training.image_batches import TrainingPhotos, prepared
from scda.adapt.training.sampling import Step
from scda.models.backbones import Backbone
from scda.models.network import PixelBackbone

_BATCH = 32  # images of an inference pass


class TunedBackbone(PixelBackbone):
    """A backbone of which some layers learn; all others keep weights and batch statistics.

    What lies before the first layer that learns needs no gradient, so that nothing is kept for a
    backward pass through it. In training each of several processes sees its part of a batch, and
    all get the features of the whole.
    """

    def __init__(self, backbone: Backbone, part: str) -> None:
        """Let the `last` stage learn, or `all` of it."""
        super().__init__(backbone)
        for name, weight in self.network.named_parameters():
            weight.requires_grad_(part == "all" or name in backbone.last_stage)
        # (N, H, W, 3) pixels are channels-last already: with such weights nothing is reordered.
        self.to(memory_format=torch.channels_last)
        self._shared = False
        self._learning = [layer for layer in self.network.modules() if _learns(layer)]

    def train(self, mode: bool = True) -> Self:
        """Let the layers that learn use the statistics of the batch, and no others (choice 21)."""
        super().train(False)
        self._shared = mode
        for layer in self._learning:
            layer.training = mode
        return self

    def forward(self, pixels: Tensor) -> Tensor:
        """Return the backbone's features, (N, D_backbone)."""
        features = super().forward(pixels)
        return distributed.all_gather_rows(features) if self._shared else features

    @torch.no_grad()
    def refresh_batchnorm(self, batches: Iterable[Tensor]) -> None:
        """Make the learning layers' stored statistics those of `batches`, each a sample of all.

        Of several processes each has some of them.
        """
        self.eval()  # each process has its own number of batches: nothing is put together here
        layers = [layer for layer in self._learning if isinstance(layer, nn.BatchNorm2d)]
        before = [layer.momentum for layer in layers]
        for layer in layers:
            layer.reset_running_stats()
            layer.momentum = None  # the plain mean over the batches
            layer.training = True
        seen = [len(self(pixels.to(self.mean.device))) for pixels in batches]
        distributed.average_statistics(self, weight=len(seen))
        for layer, momentum in zip(layers, before, strict=True):
            layer.momentum = momentum

    @torch.no_grad()
    def features(self, batches: Iterable[Tensor]) -> Tensor:
        """Return what it says now of all images, (N, D_backbone), on the CPU.

        Of several processes each has some of the batches, in their order.
        """
        self.eval()
        own = torch.cat([self(pixels.to(self.mean.device)).float().cpu() for pixels in batches])
        return distributed.all_gather_rows(own)


def learnt(backbone: Backbone, trained: nn.Module) -> Backbone:
    """Return a backbone with the network that was trained, if one was."""
    if not isinstance(trained, TunedBackbone):
        return backbone
    return replace(backbone, network=trained.network)


def _learns(layer: nn.Module) -> bool:
    return any(weight.requires_grad for weight in layer.parameters(recurse=False))


class ImageInputs:
    """Both domains as files: augmented by row in training, seen in one pass in between."""

    def __init__(
        self, backbone: Backbone, source: Images, target: Images, *, part: str, workers: int
    ) -> None:
        """Start nothing yet.

        Args:
            backbone: What training begins with.
            source: Files in the order of the source labels.
            target: Files in the order of the target features.
            part: `last` or `all`.
            workers: Processes that decode; 0 decodes in this one.
        """
        self.backbone = TunedBackbone(backbone, part)
        self.num_target = len(target.paths)
        self._source, self._target = source, target
        self._preprocessing = backbone.preprocessing
        self._workers = workers
        self._photos = TrainingPhotos(source, target, self._preprocessing, workers=workers)

    def batches(
        self, steps: Sequence[Step], generator: Generator, *, done: int = 0
    ) -> Iterator[tuple[Tensor, ...]]:
        """Yield for each step but the first `done` its views: source, pseudo, target."""
        return self._photos.batches(steps, generator, done=done)

    def refresh_batchnorm(self, backbone: nn.Module) -> None:
        """Make the backbone's batch statistics, where it learns, those of the whole target."""
        assert isinstance(backbone, TunedBackbone)
        parts = max(math.ceil(self.num_target / _BATCH), distributed.world_size())
        order = [range(part, self.num_target, parts) for part in range(parts)]
        backbone.refresh_batchnorm(self._prepared(self._target, order))

    def source(self, backbone: nn.Module) -> Tensor:
        """Return the features of the whole source as this backbone sees it."""
        return self._features(self._source, backbone)

    def target(self, backbone: nn.Module) -> Tensor:
        """Return the features of the whole target as this backbone sees it."""
        return self._features(self._target, backbone)

    def _features(self, images: Images, backbone: nn.Module) -> Tensor:
        assert isinstance(backbone, TunedBackbone)
        count = len(images.paths)
        size = max(1, min(_BATCH, count // distributed.world_size()))
        order = [range(start, min(start + size, count)) for start in range(0, count, size)]
        return backbone.features(self._prepared(images, order))

    def _prepared(self, images: Images, order: Sequence[Sequence[int]]) -> Iterator[Tensor]:
        return prepared(
            images, distributed.shard(order), self._preprocessing, workers=self._workers
        )
