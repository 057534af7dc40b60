import dataclasses
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from numpy.typing import NDArray
from safetensors.torch import save_file

from scda.models.errors import GateError
from scda.models.networks import export as exporting
from scda.models.networks.backbones import Backbone, load_backbone
from scda.models.networks.conv4 import Conv4
from scda.models.networks.export import OPSET, check_export, export_backbone, export_model
from scda.models.networks.network import FeatureHead, PixelClassifier
from scda.models.parity import LARGEST_TOLERANCE, TOLERANCE, Reference
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


class Rounded(torch.nn.Module):
    """A model whose probabilities in float32 differ by rounding from those in float64."""

    def __init__(self, rounding: float) -> None:
        super().__init__()
        self.exact = torch.nn.Parameter(torch.tensor(0.5))
        self.rounding = rounding

    def forward(self, pixels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        lost = 0 if self.exact.dtype == torch.float64 else self.rounding
        first = (self.exact + lost).expand(len(pixels), 1)
        return torch.cat([first, 1 - first], dim=1), torch.ones(len(pixels), 3)


@pytest.mark.parametrize(
    ("rounding", "difference", "expected"),
    [
        (1e-7, 1e-6, TOLERANCE["cpu"]),
        (1e-4, 5e-5, 2.0**-12),  # 4 times as much, up to a power of two
        (1e-4, 3e-4, 2.0**-9),
        (1e-2, 4e-3, LARGEST_TOLERANCE),
    ],
)
def test_a_model_that_rounds_more_states_a_larger_tolerance(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    rounding: float,
    difference: float,
    expected: float,
) -> None:
    reference = checked(monkeypatch, rounding, difference)
    assert reference.tolerance == expected
    reference.save(tmp_path / "parity.npz")
    with (tmp_path / "parity.npz").open("rb") as file:
        assert Reference.load(file).tolerance == expected


@pytest.mark.parametrize(("rounding", "difference"), [(1e-6, 2e-4), (1e-2, 6e-3)])
def test_a_difference_beyond_rounding_is_refused(
    monkeypatch: pytest.MonkeyPatch, rounding: float, difference: float
) -> None:
    with pytest.raises(GateError, match="differs by"):
        checked(monkeypatch, rounding, difference)


def checked(monkeypatch: pytest.MonkeyPatch, rounding: float, difference: float) -> Reference:
    """The reference of a model whose ONNX file differs from it by this much."""
    module = Rounded(rounding)

    class Different:
        provider, precision = "cpu", "fp32"

        def run(self, pixels: Pixels) -> list[NDArray[np.float32]]:
            with torch.inference_mode():
                probabilities, features = module(torch.from_numpy(pixels))
            return [probabilities.numpy() + np.float32(difference), features.numpy()]

    monkeypatch.setattr(exporting, "Session", lambda model, provider: Different())
    return check_export(module, Path("model.onnx"), np.zeros((3, 4, 4, 3), np.uint8))
