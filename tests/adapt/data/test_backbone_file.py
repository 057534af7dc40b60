from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from scda.adapt.data import backbone_file as kept
from scda.models.networks.backbones import Backbone, load_backbone
from scda.models.networks.conv4 import Conv4


@pytest.fixture(scope="module")
def backbone(tmp_path_factory: pytest.TempPathFactory) -> Backbone:
    weights = tmp_path_factory.mktemp("weights") / "conv4.safetensors"
    save_file(Conv4().state_dict(), weights)
    return load_backbone("conv4", weights=weights)


@pytest.fixture
def exports(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The backbone of every export, which writes its id in place of a model."""
    made: list[str] = []

    def export(backbone: Backbone, path: Path) -> None:
        made.append(backbone.id)
        path.write_bytes(backbone.id.encode())

    monkeypatch.setattr(kept, "export_backbone", export)
    return made


def test_a_backbone_is_exported_once(
    backbone: Backbone, exports: list[str], tmp_path: Path
) -> None:
    first, second = (kept.backbone_file(backbone, tmp_path) for _ in range(2))
    assert first == second
    assert exports == [backbone.id]
    assert first.read_bytes() == backbone.id.encode()


def test_a_damaged_file_is_replaced(backbone: Backbone, exports: list[str], tmp_path: Path) -> None:
    whole = kept.backbone_file(backbone, tmp_path)
    whole.write_bytes(whole.read_bytes()[:-1] + b"?")
    assert kept.backbone_file(backbone, tmp_path).read_bytes() == backbone.id.encode()
    assert len(exports) == 2
    assert [path.name for path in tmp_path.iterdir()] == [whole.name]


def test_other_weights_and_other_exporters_have_other_files(
    backbone: Backbone, exports: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept.backbone_file(backbone, tmp_path)
    with torch.no_grad():
        next(backbone.network.parameters()).add_(1)
    kept.backbone_file(backbone, tmp_path)
    monkeypatch.setattr(kept, "OPSET", 1)
    kept.backbone_file(backbone, tmp_path)
    assert len(exports) == len(list(tmp_path.iterdir())) == 3
