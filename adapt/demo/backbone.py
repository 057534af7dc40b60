"""Train the demo's backbone on printed digits 0-5 and letters, without target images."""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from safetensors.torch import save
from torch import nn
from torch.nn import functional

from scda.adapt.demo.data import DIGITS, Pixels
from scda.adapt.demo.strokes import SIDE
from scda.models.files import write_atomically
from scda.models.networks.conv4 import Conv4

Pictures = list[Pixels]

_BATCH = 128
_STEPS = 500
_LEARNING_RATE = 3e-3


def train_backbone(
    source: Path,
    out: Path,
    *,
    letters: Sequence[Pictures],
    seed: int,
    on_step: Callable[[int, int], None],
) -> None:
    """Train Conv4 to name printed digits and letters, and write its weights.

    Six digits alone would teach it little of what tells other shapes apart.

    Args:
        source: Folder of `write_printed_digits`: `0/*.png` ... `5/*.png`, 32x32 pixels each.
        out: The safetensors file with Conv4's state dict; replaced in one step at the end.
        letters: Images of each further class, as `draw_printed_letters` returns them; may be empty.
        seed: The same seed and thread count give the same weights.
        on_step: Called after every step with the number of finished steps and of all steps.

    Raises:
        FileNotFoundError: If the folder of a digit is missing or has no image.
        ValueError: If an image does not have 32x32 pixels.
    """
    pixels, labels = _join([*_read_source(source), *letters])
    generator = torch.Generator().manual_seed(seed)
    backbone = Conv4()
    network = nn.Sequential(backbone, nn.Linear(backbone.num_features, int(labels.max()) + 1))
    _initialise(network, generator)
    network.to(memory_format=torch.channels_last)  # a third faster on a CPU
    _fit(network, (pixels - 127) / 128, labels, generator, on_step)
    weights = {name: tensor.contiguous() for name, tensor in backbone.state_dict().items()}
    write_atomically(out, save(weights))


def _read_source(source: Path) -> list[Pictures]:
    """Read the digits' grey images, one list for each class."""
    return [_read_class(source / digit) for digit in DIGITS]


def _read_class(folder: Path) -> Pictures:
    images = [np.asarray(Image.open(path).convert("L")) for path in sorted(folder.glob("*.png"))]
    if not images:
        raise FileNotFoundError(f"{folder} holds no PNG image")
    if any(image.shape != (SIDE, SIDE) for image in images):
        raise ValueError(f"{folder} must hold images of {SIDE}x{SIDE} pixels")
    return images


def _join(classes: list[Pictures]) -> tuple[torch.Tensor, torch.Tensor]:
    """Number the classes in order and stack: pixels float (N, 1, 32, 32), labels int64 (N,)."""
    pixels = np.stack([image for images in classes for image in images])
    labels = np.repeat(np.arange(len(classes)), [len(images) for images in classes])
    return torch.from_numpy(pixels).float()[:, None], torch.from_numpy(labels)


def _initialise(network: nn.Module, generator: torch.Generator) -> None:
    """Draw the initial weights from the seed, independent of PyTorch's global generator."""
    for module in network.modules():
        if isinstance(module, nn.Conv2d | nn.Linear):
            nn.init.kaiming_normal_(module.weight, nonlinearity="relu", generator=generator)
        if isinstance(module, nn.Linear):
            nn.init.zeros_(module.bias)


def _fit(
    network: nn.Module,
    images: torch.Tensor,
    labels: torch.Tensor,
    generator: torch.Generator,
    on_step: Callable[[int, int], None],
) -> None:
    """Minimise the smoothed cross-entropy over augmented batches."""
    optimiser = torch.optim.AdamW(network.parameters(), _LEARNING_RATE, weight_decay=1e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, _LEARNING_RATE, total_steps=_STEPS)
    network.train()
    for step in range(_STEPS):
        chosen = torch.randint(len(images), (_BATCH,), generator=generator)
        scores = network(_augment(images[chosen], generator))
        loss = functional.cross_entropy(scores, labels[chosen], label_smoothing=0.1)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()
        on_step(step + 1, _STEPS)
    network.eval()


def _augment(images: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Warp, brighten and add noise: float (N, 1, H, W) to float (N, 3, H, W)."""

    def noise(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator)

    count, _, height, width = images.shape
    turn = torch.eye(2) + 0.08 * noise(count, 2, 2)
    affine = torch.cat([turn, 0.04 * noise(count, 2, 1)], dim=2)
    grid = functional.affine_grid(affine, [count, 1, height, width], align_corners=False)
    bend = functional.interpolate(
        0.07 * noise(count, 2, 4, 4), size=(height, width), mode="bicubic"
    )
    grid = grid + bend.permute(0, 2, 3, 1)
    warped = functional.grid_sample(images, grid, padding_mode="border", align_corners=False)
    # A gain above or below 1 makes strokes thicker or thinner, because their rims are grey.
    gain = 1 + 0.15 * noise(count, 1, 1, 1)
    inked = (warped + 1) * gain - 1 + 0.06 * noise(count, 1, 1, 1)
    noisy = inked.clamp(-1, 1) + 0.08 * noise(count, 1, height, width)
    return noisy.expand(-1, 3, -1, -1).contiguous(memory_format=torch.channels_last)
