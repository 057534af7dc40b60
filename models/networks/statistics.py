"""The statistics of batch normalisation: those of a domain in place of those of the pre-training.

Source: adaptive batch normalisation (Li et al., Revisiting Batch Normalization for Practical
Domain Adaptation, arXiv 1603.04779).
"""

import copy
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from scda.models.networks.backbones import Backbone
from scda.models.networks.network import PixelBackbone

Statistics = Mapping[str, Tensor]  # means and variances by their names in the state dict

_NAMES = ("running_mean", "running_var")


def has_statistics(backbone: Backbone) -> bool:
    """Return whether the backbone normalises by statistics of its training images."""
    return bool(_layers(backbone.network))


@contextmanager
def gathering(layers: Iterable[_BatchNorm]) -> Iterator[None]:
    """Let layers normalise every batch by its own statistics, and keep the mean over the batches.

    Each batch counts as much. After the block, the layers normalise by what they have kept.
    """
    momenta = {layer: layer.momentum for layer in layers}
    for layer in momenta:
        layer.reset_running_stats()
        layer.momentum = None  # the plain mean over the batches
        layer.train()
    try:
        yield
    finally:
        for layer, momentum in momenta.items():
            layer.momentum = momentum
            layer.eval()


def batch_statistics(backbone: Backbone, batches: Iterable[Tensor]) -> Statistics:
    """Return the statistics that the layers see if each batch is normalised by its own.

    Args:
        backbone: One backbone, on the CPU.
        batches: Pixels, uint8 (B, H, W, 3); each batch is a sample of the whole domain.
    """
    return _pass(backbone, batches)[0]


def batch_features(backbone: Backbone, batches: Iterable[Tensor]) -> Tensor:
    """Return the features of images if each batch is normalised by its own statistics, (N, D).

    With large batches they are nearly those that the statistics of the domain would give.

    Args:
        backbone: One backbone, on the CPU.
        batches: Pixels, uint8 (B, H, W, 3); each batch is a sample of the whole domain.
    """
    return torch.cat([torch.empty(0, backbone.width), *_pass(backbone, batches)[1]])


def with_statistics(backbone: Backbone, statistics: Statistics) -> Backbone:
    """Return the backbone with other statistics; its weights stay."""
    network = copy.deepcopy(backbone.network)
    network.load_state_dict({**network.state_dict(), **statistics})
    return replace(backbone, network=network)


@torch.inference_mode()
def _pass(backbone: Backbone, batches: Iterable[Tensor]) -> tuple[Statistics, list[Tensor]]:
    module = PixelBackbone(replace(backbone, network=copy.deepcopy(backbone.network)))
    module = module.eval().to(memory_format=torch.channels_last)
    layers = _layers(module.network)
    with gathering(layers.values()):
        features = [module(pixels) for pixels in batches]
    statistics = {
        f"{name}.{of}": getattr(layer, of).clone()
        for name, layer in layers.items()
        for of in _NAMES
    }
    return statistics, features


def _layers(network: nn.Module) -> dict[str, _BatchNorm]:
    return {name: layer for name, layer in network.named_modules() if isinstance(layer, _BatchNorm)}
