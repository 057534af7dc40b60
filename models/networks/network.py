"""The networks of SCDA: F = backbone and head, C = one linear layer; tensor in, tensor out."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from scda.models.networks.backbones import Backbone


class FeatureHead(nn.Sequential):
    """The trained part of F: (Linear, BatchNorm, ReLU) per width; (N, D_backbone) → (N, D).

    Source: SCDA, supplement 2.1: four fully connected layers with batch normalisation replace
    the backbone's last one; the last of them is C (choice 18).
    """

    def __init__(self, backbone_width: int, widths: Sequence[int]) -> None:
        """Stack one block per width."""
        layers: list[nn.Module] = []
        for before, after in zip([backbone_width, *widths], widths, strict=False):
            layers += [nn.Linear(before, after), nn.BatchNorm1d(after), nn.ReLU()]
        super().__init__(*layers)
        self.width = widths[-1]


class Whitened(nn.Module):
    """Whitened features of the target, of one length: (N, D_backbone) → (N, D)."""

    mean: Tensor
    projection: Tensor

    def __init__(self, mean: Tensor, projection: Tensor, length: float) -> None:
        """Keep the map.

        Args:
            mean: Mean of the target's features of length 1, (D_backbone,).
            projection: Projection after the mean has been subtracted, (D_backbone, D).
            length: Length of the result.
        """
        super().__init__()
        self.register_buffer("mean", mean)
        self.register_buffer("projection", projection)
        self.length = length

    def forward(self, features: Tensor) -> Tensor:
        """Return the whitened features."""
        points = (normalize(features, dim=1) - self.mean) @ self.projection
        return self.length * normalize(points, dim=1)


class Tempered(nn.Module):
    """Logits divided by the temperature of their classes: (N, C) → (N, C), in the same order.

    An image's logits are multiplied by the mean of 1 / temperature over the classes, weighted by
    its probabilities, so that there is no jump where the most probable class changes.
    """

    inverse: Tensor

    def __init__(self, temperatures: Tensor) -> None:
        """Keep the inverse of the temperatures, (C,), all above 0."""
        super().__init__()
        self.register_buffer("inverse", 1 / temperatures)

    def forward(self, logits: Tensor) -> Tensor:
        """Return the logits from which the softmax gives calibrated probabilities."""
        scale: Tensor = (logits.softmax(dim=1) * self.inverse).sum(dim=1, keepdim=True)
        return logits * scale


class PixelBackbone(nn.Module):
    """Normalisation and backbone: (N, H, W, 3) uint8 → (N, D_backbone)."""

    mean: Tensor
    std: Tensor

    def __init__(self, backbone: Backbone) -> None:
        """Keep the network and its normalisation together."""
        super().__init__()
        self.network = backbone.network
        for name in ("mean", "std"):
            values = torch.tensor(getattr(backbone.preprocessing, name)).view(1, 3, 1, 1)
            self.register_buffer(name, values)

    def forward(self, pixels: Tensor) -> Tensor:
        """Return the backbone's features."""
        images = (pixels.permute(0, 3, 1, 2).float() - self.mean) / self.std
        features: Tensor = self.network(images)
        return features


class SideBySide(nn.Module):
    """Several backbones, each on its square of the pixels: (N, H, W, 3) uint8 → (N, D_backbone).

    Each backbone's features have length 1, so that all count as much.
    """

    def __init__(self, parts: Sequence[Backbone]) -> None:
        """Keep the backbones in the order of their squares, from top to bottom."""
        super().__init__()
        self.parts = nn.ModuleList(PixelBackbone(part) for part in parts)
        self.sides = [part.preprocessing.crop_px for part in parts]

    def forward(self, pixels: Tensor) -> Tensor:
        """Return all features side by side."""
        squares = pixels.split(self.sides, dim=1)
        return torch.cat(
            [
                normalize(part(square[:, :, :side]), dim=1)
                for part, square, side in zip(self.parts, squares, self.sides, strict=True)
            ],
            dim=1,
        )


def pixel_backbone(backbone: Backbone) -> nn.Module:
    """Return the module that maps pixels, (N, H, W, 3) uint8, to features, (N, D_backbone)."""
    return SideBySide(backbone.parts) if backbone.parts else PixelBackbone(backbone)


class FeatureClassifier(nn.Module):
    """Head and C: features (N, D_backbone) → probabilities (N, C) and features (N, D)."""

    def __init__(self, head: nn.Module, classifier: nn.Module) -> None:
        """Combine the two parts."""
        super().__init__()
        self.head, self.classifier = head, classifier

    def forward(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Return softmax probabilities and F's features."""
        features = self.head(features)
        return self.classifier(features).softmax(dim=1), features


class PixelClassifier(nn.Module):
    """All of F and C: (N, H, W, 3) uint8 → probabilities (N, C) and features (N, D)."""

    def __init__(self, backbone: Backbone, head: nn.Module, classifier: nn.Module) -> None:
        """Combine the three parts."""
        super().__init__()
        self.backbone, self.top = pixel_backbone(backbone), FeatureClassifier(head, classifier)

    def forward(self, pixels: Tensor) -> tuple[Tensor, Tensor]:
        """Return softmax probabilities and F's features."""
        top: tuple[Tensor, Tensor] = self.top(self.backbone(pixels))
        return top
