import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from numpy.typing import NDArray

from scda.models import session as session_module
from scda.models.errors import GateError, UsageError
from scda.models.onnx_runtime import ort
from scda.models.preprocess import Pixels
from scda.models.session import Session, padded

CPU, CUDA = "CPUExecutionProvider", "CUDAExecutionProvider"


@pytest.fixture
def model(whole_bundle: Path) -> Path:
    return whole_bundle / "model.onnx"


class GpuSession:
    """Stands in for ONNX Runtime: on a GPU machine, or on one where CUDA fails to load."""

    def __init__(self, provider: str) -> None:
        self._provider = provider
        self.goes_over_to_the_cpu = True

    def __call__(self, path: str, options: ort.SessionOptions, *, providers: list[str]) -> object:
        self.asked_for = providers
        return self

    def get_providers(self) -> list[str]:
        return [self._provider, CPU]

    def disable_fallback(self) -> None:
        self.goes_over_to_the_cpu = False


def gpu_machine(monkeypatch: pytest.MonkeyPatch, got: str) -> GpuSession:
    fake = GpuSession(got)
    monkeypatch.setattr(ort, "get_available_providers", lambda: [CUDA, CPU])
    monkeypatch.setattr(ort, "preload_dlls", lambda: None)
    monkeypatch.setattr("scda.models.session.has_driver", lambda: True)
    monkeypatch.setattr(ort, "InferenceSession", fake)
    return fake


@pytest.mark.parametrize("count", [1, 2, 3, 7, 64])
def test_any_number_of_images_is_answered_image_by_image(model: Path, count: int) -> None:
    session = Session(model, provider="cpu", threads=1)
    pixels = np.random.default_rng(0).integers(0, 256, (count, 32, 32, 3), dtype=np.uint8)
    probabilities, features = session.run(pixels)
    assert (probabilities.shape, features.shape) == ((count, 5), (count, 3))
    assert probabilities.dtype == features.dtype == np.float32
    # The model's features are the mean colour, 0 to 1, less a half.
    np.testing.assert_allclose(features, pixels.mean(axis=(1, 2)) / 255 - 0.5, atol=1e-5)


def test_the_model_tells_its_sizes(model: Path) -> None:
    session = Session(model, provider="cpu", threads=1)
    assert (session.shape, session.width, session.provider) == ((32, 32, 3), 3, "cpu")


def test_models_that_load_at_once_leave_standard_output_alone(model: Path) -> None:
    before = sys.stdout
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: Session(model, provider="cpu", threads=1), range(8)))
    assert sys.stdout is before


def test_as_many_threads_as_cpus_may_be_used(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_module, "usable_cpus", lambda: 3)
    options = Session(model, provider="cpu")._session.get_session_options()
    assert (options.intra_op_num_threads, options.inter_op_num_threads) == (3, 1)
    options = Session(model, provider="cpu", threads=2)._session.get_session_options()
    assert options.intra_op_num_threads == 2


@pytest.mark.parametrize("spinning", [True, False])
def test_threads_spin_only_where_asked(model: Path, spinning: bool) -> None:
    session = Session(model, provider="cpu", threads=1, spinning=spinning)
    options = session._session.get_session_options()
    entry = options.get_session_config_entry("session.intra_op.allow_spinning")
    assert entry == str(int(spinning))


@pytest.mark.parametrize("provider", ["tpu", "CPU", ""])
def test_an_unknown_provider_is_a_usage_error(model: Path, provider: str) -> None:
    with pytest.raises(UsageError, match=r"expected auto, cpu, cuda or openvino$"):
        Session(model, provider=provider)


def test_without_a_gpu_auto_is_the_cpu_and_cuda_is_refused(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("scda.models.session.has_driver", lambda: False)
    assert Session(model, provider="auto", threads=1).provider == "cpu"
    with pytest.raises(UsageError, match=r"^provider cuda is not available[^\n]*$"):
        Session(model, provider="cuda")


def test_without_a_gpu_build_auto_is_the_cpu_and_cuda_is_refused(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ort, "get_available_providers", lambda: [CPU])
    assert Session(model, provider="auto", threads=1).provider == "cpu"
    with pytest.raises(UsageError, match="cuda"):
        Session(model, provider="cuda")


@pytest.mark.parametrize("provider", ["auto", "cuda"])
def test_a_gpu_is_used_where_there_is_one(
    model: Path, monkeypatch: pytest.MonkeyPatch, provider: str
) -> None:
    fake = gpu_machine(monkeypatch, got=CUDA)
    assert Session(model, provider=provider, gpu=1).provider == "cuda"
    assert fake.asked_for == [(CUDA, {"device_id": "1"}), CPU]
    assert not fake.goes_over_to_the_cpu  # after an error in a call


def test_the_cpu_can_be_asked_for_beside_a_gpu(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = gpu_machine(monkeypatch, got=CPU)
    assert Session(model, provider="cpu").provider == "cpu"
    assert fake.asked_for == [CPU]


def test_a_gpu_that_fails_to_load_is_not_passed_off_as_one(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu_machine(monkeypatch, got=CPU)
    assert Session(model, provider="auto").provider == "cpu"
    with pytest.raises(UsageError, match=r"cuda is not available: the session runs on cpu$"):
        Session(model, provider="cuda")


def test_what_onnx_runtime_prints_about_a_gpu_is_no_output(
    model: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    gpu_machine(monkeypatch, got=CPU)
    missing = "Failed to load libcudnn.so.9: cannot open shared object file"
    monkeypatch.setattr(ort, "preload_dlls", lambda: print(f"*** EP Error ***\n{missing}\nmore"))
    assert Session(model, provider="auto").provider == "cpu"
    assert caplog.messages == [
        f"found a GPU that ONNX Runtime cannot use; running on the CPU: {missing}"
    ]
    with pytest.raises(UsageError, match=f"the session runs on cpu: {missing}$"):
        Session(model, provider="cuda")
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("damaged", [b"", b"no model", "half", "missing"])
def test_a_file_that_is_no_model_is_named(
    model: Path, tmp_path: Path, damaged: bytes | str
) -> None:
    path = tmp_path / "model.onnx"
    if isinstance(damaged, bytes):
        path.write_bytes(damaged)
    elif damaged == "half":
        path.write_bytes(model.read_bytes()[: model.stat().st_size // 2])
    with pytest.raises(GateError, match=r"^model\.onnx: not an ONNX model: [^\n]+$"):
        Session(path, provider="cpu", threads=1)


@pytest.mark.parametrize(("count", "wanted"), [(1, 1), (2, 2), (3, 4), (5, 8), (32, 32), (33, 64)])
def test_a_batch_is_padded_to_the_next_power_of_two(count: int, wanted: int) -> None:
    pixels = np.full((count, 2, 3, 3), 7, np.uint8)
    result = padded(pixels)
    assert result.shape == (wanted, 2, 3, 3)
    assert result.dtype == np.uint8
    np.testing.assert_array_equal(result[:count], pixels)
    assert not result[count:].any()


@pytest.mark.parametrize(("provider", "fed"), [("cpu", 5), ("cuda", 8)])
def test_batches_are_padded_for_a_gpu_alone(
    model: Path, monkeypatch: pytest.MonkeyPatch, provider: str, fed: int
) -> None:
    session = Session(model, provider="cpu", threads=1)
    bare, shapes = session._session, list[int]()

    def noted(names: None, inputs: dict[str, Pixels]) -> list[NDArray[np.float32]]:
        shapes.extend(len(pixels) for pixels in inputs.values())
        outputs: list[NDArray[np.float32]] = bare.run(names, inputs)
        return outputs

    monkeypatch.setattr(
        session, "_session", SimpleNamespace(run=noted, get_inputs=session._session.get_inputs)
    )
    pixels = np.random.default_rng(0).integers(0, 256, (5, 32, 32, 3), dtype=np.uint8)
    wanted = session.run(pixels)
    shapes.clear()
    session.provider = provider
    for found, output in zip(session.run(pixels), wanted, strict=True):
        np.testing.assert_array_equal(found, output)
    assert shapes == [fed]


@pytest.mark.parametrize(
    ("threads", "provider", "at_once"),
    [(1, "cpu", 6), (2, "cpu", 3), (4, "cpu", 1), (8, "cpu", 1), (1, "cuda", 1)],
)
def test_calls_at_once_fill_the_cpus(
    model: Path, monkeypatch: pytest.MonkeyPatch, threads: int, provider: str, at_once: int
) -> None:
    monkeypatch.setattr(session_module, "usable_cpus", lambda: 6)
    session = Session(model, provider="cpu", threads=threads)
    session.provider = provider
    assert session.at_once == at_once
