"""The provider `openvino`, with OpenVINO itself where it is installed."""

import re
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from scda.models import session as session_module
from scda.models.errors import GateError, UsageError
from scda.models.openvino_runtime import _library
from scda.models.parity import Reference, check_parity
from scda.models.predictor import load_predictor
from scda.models.session import Session

FOLDER = Path(__file__).parents[2]


@pytest.fixture
def model(whole_bundle: Path) -> Path:
    return whole_bundle / "model.onnx"


@pytest.fixture
def installed() -> None:
    """Skip the test where OpenVINO is not installed; imported as the session imports it."""
    try:
        _library()
    except UsageError:
        pytest.skip("OpenVINO is not installed")


def test_without_it_one_line_names_the_extra(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "openvino", None)
    with pytest.raises(UsageError, match=r"^openvino is missing; pip install 'scda\[openvino\]'$"):
        Session(model, provider="openvino")


@pytest.mark.parametrize(
    ("capabilities", "precision", "hint"),
    [(["FP32", "BF16", "INT8"], "bf16", "bf16"), (["FP32", "INT8"], "fp32", "f32")],
)
def test_threads_are_bounded_and_bf16_is_used_where_the_cpu_has_it(
    model: Path,
    monkeypatch: pytest.MonkeyPatch,
    capabilities: list[str],
    precision: str,
    hint: str,
) -> None:
    asked: dict[str, Any] = {}

    class Core:
        def get_property(self, device: str, name: str) -> list[str]:
            assert (device, name) == ("CPU", "OPTIMIZATION_CAPABILITIES")
            return capabilities

        def read_model(self, content: bytes, weights: bytes) -> bytes:
            return content

        def compile_model(self, model: bytes, device: str, options: dict[str, Any]) -> object:
            asked.update(options)
            return SimpleNamespace(create_infer_request=object)

    fake = ModuleType("openvino")
    fake.Core = Core  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "openvino", fake)
    monkeypatch.setattr(session_module, "usable_cpus", lambda: 6)
    session = Session(model, provider="openvino", threads=2)
    assert (session.provider, session.precision, session.at_once) == ("openvino", precision, 3)
    assert asked == {
        "INFERENCE_PRECISION_HINT": hint,
        "INFERENCE_NUM_THREADS": 6,
        "NUM_STREAMS": 3,
        "ENABLE_CPU_PINNING": False,
    }


def test_its_package_for_telemetry_is_not_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    there = ModuleType("openvino_telemetry")
    monkeypatch.setitem(sys.modules, "openvino_telemetry", there)
    seen: list[object] = []
    fake = ModuleType("openvino")

    class Finder:
        def find_spec(self, name: str, *rest: object) -> None:
            if name == "openvino":
                seen.append(sys.modules["openvino_telemetry"])

    monkeypatch.delitem(sys.modules, "openvino", raising=False)
    monkeypatch.setattr(sys, "meta_path", [Finder()])
    with pytest.raises(UsageError, match="openvino is missing"):
        _library()
    assert seen == [None]
    assert sys.modules["openvino_telemetry"] is there
    monkeypatch.setitem(sys.modules, "openvino", fake)
    assert _library() is fake


def test_openvino_is_imported_in_one_place() -> None:
    imports = re.compile(r"^\s*(import|from) openvino\b", re.MULTILINE)
    folders = ("adapt", "benchmarks", "models", "scda", "serve", "tests")
    modules = [path for folder in folders for path in (FOLDER / folder).rglob("*.py")]
    found = [path for path in modules if imports.search(path.read_text("utf-8"))]
    assert [path.relative_to(FOLDER).as_posix() for path in found] == ["models/openvino_runtime.py"]


@pytest.mark.usefixtures("installed")
def test_it_answers_as_onnx_runtime_does(whole_bundle: Path) -> None:
    predictor = load_predictor(whole_bundle, provider="openvino", threads=1)
    session = predictor.session
    assert (session.provider, session.shape, session.width) == ("openvino", (32, 32, 3), 3)
    with (whole_bundle / "parity.npz").open("rb") as file:
        reference = Reference.load(file)
    assert check_parity(session, reference) < 0.15
    exact = Session(whole_bundle / "model.onnx", provider="cpu", threads=1)
    pixels = np.random.default_rng(0).integers(0, 256, (7, 32, 32, 3), dtype=np.uint8)
    for found, expected in zip(session.run(pixels), exact.run(pixels), strict=True):
        assert found.dtype == np.float32
        np.testing.assert_allclose(found, expected, atol=0.02)


@pytest.mark.usefixtures("installed")
def test_calls_in_parallel_keep_their_answers(model: Path) -> None:
    session = Session(model, provider="openvino", threads=1)
    images = np.random.default_rng(0).integers(0, 256, (40, 1, 32, 32, 3), dtype=np.uint8)
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(session.run, images))
    for image, (probabilities, features) in zip(images, answers, strict=True):
        again = session.run(image)
        np.testing.assert_array_equal(probabilities, again[0])
        np.testing.assert_array_equal(features, again[1])


@pytest.mark.usefixtures("installed")
def test_a_file_that_is_no_model_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(b"no model")
    with pytest.raises(GateError, match=r"^model\.onnx: OpenVINO cannot run it: "):
        Session(path, provider="openvino", threads=1)
