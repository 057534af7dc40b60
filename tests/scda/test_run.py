from pathlib import Path

import numpy as np
import pytest
import torch

import scda
from tests.conftest import TinyData


def test_train_returns_the_run_and_its_model(
    tiny: TinyData, tiny_run: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    out, job = tmp_path / "run", tiny.job(tmp_path / "run")
    np.random.seed(5)
    expected, threads = np.random.random(), torch.get_num_threads()
    np.random.seed(5)
    run = scda.train(
        tiny.source, str(tiny.target), out, config=job.config, cache=tiny.cache, quiet=True
    )
    assert (np.random.random(), torch.get_num_threads()) == (expected, threads)
    assert run.path == out
    assert [info.label for info in run.classes[:3]] == ["blue_disc", "green_bar", "red_square"]
    assert run.k_star == len(run.classes) - 3 > 0
    assert all(isinstance(finding, str) for finding in run.findings)
    assert run.num_rejected == 0
    model = run.load(provider="cpu", threads=1)
    assert model.id == run.id == scda.load(tiny_run).id  # as the command line trains it
    assert model.path == run.bundle
    again = scda.train(
        tiny.source, tiny.target, out, config=job.config, cache=tiny.cache, resume=True, quiet=True
    )
    assert again.id == run.id
    assert capfd.readouterr().out == ""


def test_train_raises_what_the_command_line_would_print(tiny: TinyData, tmp_path: Path) -> None:
    with pytest.raises(scda.UsageError, match="nowhere"):
        scda.train("nowhere", tiny.target, tmp_path / "run", quiet=True)
    (tmp_path / "empty").mkdir()
    with pytest.raises(scda.DataError):
        scda.train(tmp_path / "empty", tiny.target, tmp_path / "run", quiet=True)
