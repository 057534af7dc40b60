"""Runs that `torchrun` starts: a process per GPU, connected by NCCL; on CPUs by Gloo."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from scda.models.bundle import read_manifest
from tests.conftest import TinyData
from tests.gpu.conftest import Figure
from tests.gpu.differences import difference
from tests.gpu.test_training import TOLERANCE
from tests.launched import torchrun, words_of

LONGEST_SECONDS = 240


@pytest.mark.parametrize("processes", [1, 2])
def test_processes_train_what_one_trains(
    tiny: TinyData,
    tmp_path: Path,
    on_cpu: Callable[[str], Path],
    figure: Figure,
    device: str,
    processes: int,
) -> None:
    run = tmp_path / "run"
    words = words_of(tiny, run, device=device, finetune="last")
    started = torchrun([*words, "--cache", str(tmp_path / "cache")], processes=processes)
    told = started.communicate(timeout=LONGEST_SECONDS)[1]
    if device == "cuda" and processes > torch.cuda.device_count():
        figure("two processes need two GPUs", "refused on a single one")
        assert "2 processes on this machine, but torch finds 1 GPUs; use" in told
        assert started.returncode != 0
        return
    assert started.returncode == 0, told
    assert "destroy_process_group" not in told  # NCCL warns of a group that is left open
    assert read_manifest(run / "bundle").run["device"] == device
    found = difference(run, on_cpu("last"), tiny.labelled)
    figure(f"within {TOLERANCE['fp32']}", found)
    assert found.within(TOLERANCE["fp32"])
