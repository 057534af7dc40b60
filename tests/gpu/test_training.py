"""Training on a GPU: the CPU's figures in each precision, stopped and resumed, memory freed."""

import gc
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from scda.adapt.pipeline.run_reporter import RunReporter
from scda.adapt.training.checkpoint import PAUSED
from scda.models.bundle import read_manifest
from tests.conftest import TinyData
from tests.gpu.conftest import Figure, trained
from tests.gpu.differences import Difference, difference

# A GPU adds in another order, and in TF32 where convolutions are concerned; bf16 has 8 bits.
TOLERANCE = {
    "fp32": Difference(losses=0.02, agreement=0.9, hos=5.0, k_star=0),
    "bf16": Difference(losses=0.05, agreement=0.8, hos=10.0, k_star=1),
}


@pytest.mark.parametrize("precision", TOLERANCE)
@pytest.mark.parametrize("finetune", ["none", "last", "all"])
def test_a_training_has_the_figures_of_the_cpu(
    tiny: TinyData,
    tmp_path: Path,
    on_cpu: Callable[[str], Path],
    figure: Figure,
    device: str,
    finetune: str,
    precision: str,
) -> None:
    run, expected = tmp_path / "run", TOLERANCE[precision]
    trained(tiny, run, finetune=finetune, device=device, precision=precision)
    assert read_manifest(run / "bundle").run["device"] == device
    found = difference(run, on_cpu(finetune), tiny.labelled)
    figure(f"within {expected}", found)
    assert found.within(expected)


@pytest.mark.slow
@pytest.mark.parametrize("changes", [{"seed": 1}, {"lr": 1e-5}, {"rounds": 0}])
def test_another_training_is_not_within_the_tolerance(
    tiny: TinyData, tmp_path: Path, on_cpu: Callable[[str], Path], changes: dict[str, Any]
) -> None:
    trained(tiny, tmp_path / "run", device="cpu", **changes)
    found = difference(tmp_path / "run", on_cpu("none"), tiny.labelled)
    assert not found.within(TOLERANCE["fp32"])


@pytest.mark.parametrize("finetune", ["none", "last"])
def test_a_stopped_training_is_resumed_on_its_device(
    tiny: TinyData,
    tmp_path: Path,
    figure: Figure,
    device: str,
    finetune: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    whole, run = tmp_path / "whole", tmp_path / "run"
    fields = {"device": device, "finetune": finetune, "cache": tmp_path / "cache"}
    trained(tiny, whole, **fields)
    on_step = RunReporter.on_step

    def interrupt(self: RunReporter, step: int, losses: dict[str, float]) -> None:
        on_step(self, step, losses)
        if (self._stage, step) == (1, 20):
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(RunReporter, "on_step", interrupt)
    with pytest.raises(KeyboardInterrupt):
        trained(tiny, run, **fields)
    monkeypatch.undo()
    assert (run / "checkpoints" / PAUSED).exists()
    trained(tiny, run, resume=True, **fields)
    if device == "cpu":
        assert read_manifest(run / "bundle").id == read_manifest(whole / "bundle").id
    found = difference(run, whole, tiny.labelled)
    figure(f"within {TOLERANCE['fp32']}", found)
    assert found.within(TOLERANCE["fp32"])


def allocated(device: str) -> int:
    """Return the bytes of all tensors on the device."""
    gc.collect()
    if device == "cuda":
        return torch.cuda.memory_allocated()
    plain = {torch.Tensor, torch.nn.Parameter}  # no stand-ins that the exporter leaves
    tensors = [one for one in gc.get_objects() if type(one) in plain and one.device.type == device]
    storages = [tensor.untyped_storage() for tensor in tensors]
    return sum({storage.data_ptr(): storage.nbytes() for storage in storages}.values())


def test_a_training_frees_its_memory(
    tiny: TinyData, tmp_path: Path, figure: Figure, device: str
) -> None:
    fields: dict[str, Any] = {"device": device, "finetune": "last", "rounds": 1, "round_steps": 5}
    trained(tiny, tmp_path / "first", **fields)  # what libraries keep, such as their workspaces
    before = allocated(device)
    trained(tiny, tmp_path / "second", **fields)
    more = allocated(device) - before
    figure("at most 1 MB more than before", f"{more / 1e6:.2f} MB")
    assert more <= 1_000_000
