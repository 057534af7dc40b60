"""Conv4: the small convolutional backbone of the demo.

Tiny images need no large network: four 3x3 convolutions train in about a minute on two CPU cores
and export to ONNX with a dynamic batch.
"""

from typing import Any

import torch
from torch import nn

_WIDTHS = (32, 64, 96, 128)
_BLOCK_LAYERS = 3


def _block(inputs: int, outputs: int) -> list[nn.Module]:
    """One 3x3 convolution, batch norm and ReLU, as layers that keep the size of the image."""
    convolution = nn.Conv2d(inputs, outputs, kernel_size=3, padding=1, bias=False)
    return [convolution, nn.BatchNorm2d(outputs), nn.ReLU()]


class Conv4(nn.Module):
    """Four convolution blocks and a global average pool, about 0.2 million parameters.

    Attributes:
        num_features: Length D of one feature vector.
        last_stage: Names of the parameters of the last block.
    """

    def __init__(self) -> None:
        """Build the network with PyTorch's default weights."""
        super().__init__()
        first, second, third, fourth = _WIDTHS
        self.num_features: int = fourth
        self.layers = nn.Sequential(
            # The images of the demo are enlarged 8x8 cells; larger maps would show no more.
            nn.AvgPool2d(4),
            *_block(3, first),
            *_block(first, second),
            nn.MaxPool2d(2),
            *_block(second, third),
            *_block(third, fourth),
        )
        names = (name for name, _ in self.layers[-_BLOCK_LAYERS:].named_parameters())
        self.last_stage = frozenset(f"layers.{name}" for name in names)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Map images to feature vectors.

        Args:
            images: Normalised images, float (N, 3, H, W), with H and W of at least 8 pixels.

        Returns:
            Features, float (N, num_features), none of them negative.
        """
        maps: Any = self.layers(images)
        return torch.mean(maps, dim=(2, 3))
