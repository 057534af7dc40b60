import dataclasses
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from numpy.typing import NDArray
from safetensors.torch import save_file

from scda.models.errors import GateError
from scda.models.networks.backbones import Backbone, load_backbone
from scda.models.networks.conv4 import Conv4
from scda.models.networks.export import OPSET, check_export, export_backbone, export_model
from scda.models.networks.network import FeatureHead, PixelClassifier
from scda.models.session import Session

Pixels = NDArray[np.uint8]
pytestmark = pytest.mark.usefixtures("exporter")


@pytest.fixture(scope="module")
def backbone(tmp_path_factory: pytest.TempPathFactory) -> Backbone:
    weights = tmp_path_factory.mktemp("weights") / "conv4.safetensors"
    torch.manual_seed(0)
    save_file(Conv4().state_dict(), weights)
    return load_backbone("conv4", weights=weights)


@pytest.fixture
def module(backbone: Backbone) -> PixelClassifier:
    return classifier(backbone)


def classifier(backbone: Backbone) -> PixelClassifier:
    torch.manual_seed(1)
    head = FeatureHead(backbone.width, (16, 8))
    return PixelClassifier(backbone, head, torch.nn.Linear(8, 5))


@pytest.fixture(scope="module")
def pixels() -> Pixels:
    return np.random.default_rng(0).integers(0, 256, (7, 32, 32, 3)).astype(np.uint8)


def export(module: PixelClassifier, backbone: Backbone, path: Path) -> Path:
    of_backbone = path.with_name("backbone.onnx")
    export_backbone(backbone, of_backbone)
    export_model(of_backbone, module.top, path, width=backbone.width, metadata={"scda": "yes"})
    of_backbone.unlink()
    return path


def test_the_export_answers_as_torch_at_every_batch_size(
    module: PixelClassifier, backbone: Backbone, pixels: Pixels, tmp_path: Path
) -> None:
    session = Session(export(module, backbone, tmp_path / "model.onnx"), provider="cpu")
    reference = check_export(module, tmp_path / "model.onnx", pixels)
    for size in (1, 2, 3, 7):
        probabilities, features = session.run(pixels[:size])
        np.testing.assert_allclose(probabilities, reference.probabilities[:size], atol=1e-5)
        np.testing.assert_allclose(features, reference.features[:size], atol=1e-4)
        np.testing.assert_allclose(probabilities.sum(axis=1), 1, atol=1e-5)


def test_several_backbones_lie_in_one_file(backbone: Backbone, tmp_path: Path) -> None:
    weights = tmp_path / "other.safetensors"
    torch.manual_seed(2)
    save_file(Conv4().state_dict(), weights)
    parts = (load_backbone("conv4", weights=weights, image_size=16), backbone)
    below = dataclasses.replace(parts[0].preprocessing, below=parts[1].preprocessing)
    both = dataclasses.replace(
        backbone, parts=parts, preprocessing=below, width=sum(part.width for part in parts)
    )
    module = classifier(both)
    pixels = np.random.default_rng(0).integers(0, 256, (7, 48, 32, 3)).astype(np.uint8)
    path = export(module, both, tmp_path / "model.onnx")
    check_export(module, path, pixels)
    assert Session(path, provider="cpu").shape == (48, 32, 3)


def test_an_export_that_drifts_is_refused(
    module: PixelClassifier, backbone: Backbone, pixels: Pixels, tmp_path: Path
) -> None:
    path = export(module, backbone, tmp_path / "model.onnx")
    with torch.no_grad():
        for weights in module.top.classifier.parameters():
            weights[0] += 0.01
    with pytest.raises(GateError, match="parity: cpu differs by"):
        check_export(module, path, pixels)


def test_a_module_in_training_is_exported_in_evaluation_mode(
    module: PixelClassifier, backbone: Backbone, pixels: Pixels, tmp_path: Path
) -> None:
    module.train()
    path = export(module, backbone, tmp_path / "model.onnx")
    parts = [*module.top.modules(), *backbone.network.modules()]
    assert not any(part.training for part in parts)
    check_export(module, path, pixels)


def test_the_file_stands_alone_and_says_nothing_of_this_machine(
    module: PixelClassifier, backbone: Backbone, tmp_path: Path
) -> None:
    path = export(module, backbone, tmp_path / "model.onnx")
    assert [file.name for file in tmp_path.iterdir()] == ["model.onnx"]
    content = path.read_bytes()
    assert str(Path(__file__).parents[3]).encode() not in content
    assert b"site-packages" not in content
    assert b"stack_trace" not in content
    model = onnx.load(path)
    assert not any(node.doc_string or node.metadata_props for node in model.graph.node)
    assert {p.key: p.value for p in model.metadata_props} == {"scda": "yes"}
    assert {entry.domain: entry.version for entry in model.opset_import}[""] == OPSET
    assert len({entry.domain for entry in model.opset_import}) == len(model.opset_import)
