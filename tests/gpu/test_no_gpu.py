"""Where no GPU is, the tests that need one fail: skipped tests would pass for a success."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.gpu.conftest import require

SCRIPT = Path(__file__).parent / "run.sh"


@pytest.mark.parametrize("printed", ["", "NVIDIA-SMI has failed because it couldn't communicate"])
def test_the_script_says_so_in_one_line_and_fails(tmp_path: Path, printed: str) -> None:
    fake = tmp_path / "nvidia-smi"
    fake.write_text(f'#!/bin/sh\necho "{printed}"\nexit 9\n')
    fake.chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    done = subprocess.run(
        [SCRIPT], env={**os.environ, "PATH": path}, capture_output=True, text=True
    )
    assert done.returncode == 1
    assert done.stderr == (
        "test-gpu: nvidia-smi finds no GPU; expected an NVIDIA GPU with a driver for CUDA 13\n"
    )
    assert done.stdout == ""


def test_a_test_fails_without_its_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    require("cpu")
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(pytest.fail.Exception, match="torch finds no GPU"):
        require("cuda")
