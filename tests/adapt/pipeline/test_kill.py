"""Runs killed by SIGKILL at moments that hurt, resumed, and compared with one left alone."""

import multiprocessing
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from scda.adapt.data.job import Job
from scda.adapt.pipeline.run import train
from scda.adapt.pipeline.run_reporter import RunReporter
from scda.adapt.runs.folder import RunFolder
from scda.adapt.runtime.progress import Reporter
from scda.models.bundle import read_manifest
from tests.conftest import TinyData

pytestmark = pytest.mark.usefixtures("no_figures")


@pytest.fixture(autouse=True)
def _found_by_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a process of its own import this module, however pytest was started."""
    monkeypatch.syspath_prepend(str(Path(__file__).parents[3]))


def die(*_: Any, **__: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def at_step(stage: int, at: int) -> None:
    whole = RunReporter.on_step

    def on_step(self: RunReporter, step: int, losses: dict[str, float]) -> None:
        whole(self, step, losses)
        if (self._stage, step) == (stage, at):
            die()

    pytest.MonkeyPatch().setattr(RunReporter, "on_step", on_step)


def in_pretraining() -> None:
    at_step(0, 30)


def in_discovery() -> None:
    pytest.MonkeyPatch().setattr("scda.adapt.training.discovery_step.discover", die)


def in_retraining() -> None:
    at_step(1, 20)


def while_a_checkpoint_is_written() -> None:
    whole = os.replace

    def replace(old: str, new: Path) -> None:
        if Path(new).name == "round-0001.pt":  # the file is whole under its temporary name
            die()
        whole(old, new)

    pytest.MonkeyPatch().setattr(os, "replace", replace)


def before_the_bundle_stands() -> None:
    pytest.MonkeyPatch().setattr(Path, "rename", die)


def killed(job: Job, arrange: Callable[[], None]) -> None:
    arrange()
    with Reporter(quiet=True) as reporter:
        train(job, reporter)


def kill(job: Job, arrange: Callable[[], None]) -> list[str]:
    """Train in a process of its own that dies at the arranged moment; what checkpoints it left."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["scda.adapt.pipeline.run"])
    process = context.Process(target=killed, args=(job, arrange))
    process.start()
    process.join(120)
    assert process.exitcode == -signal.SIGKILL
    return sorted(path.name for path in (job.out / "checkpoints").glob("*.pt"))


def test_a_run_killed_again_and_again_ends_in_the_same_bundle(
    tiny: TinyData, tiny_run: Path, tmp_path: Path
) -> None:
    job = tiny.job(tmp_path / "run", resume=True)
    # No moment costs more than the stage under way.
    assert kill(job, in_pretraining) == []
    assert kill(job, in_discovery) == ["round-0000.pt"]
    assert kill(job, in_retraining) == ["round-0000.pt"]
    assert kill(job, while_a_checkpoint_is_written) == ["round-0000.pt"]
    assert kill(job, before_the_bundle_stands) == ["round-0001.pt", "round-0002.pt"]
    assert not (job.out / "bundle").exists()
    with Reporter(quiet=True) as reporter:
        trained = train(job, reporter)
    assert trained
    assert trained.manifest.id == read_manifest(tiny_run / "bundle").id
    assert [record["round"] for record in records(job.out) if "round" in record] == [0, 1, 2]
    left = {path.name for path in (job.out / "checkpoints").iterdir()}
    assert left == {"round-0001.pt", "round-0002.pt"}


def records(run: Path) -> list[dict[str, Any]]:
    return RunFolder(run).records()


def start(run: Path, tiny: TinyData, options: Path) -> subprocess.Popen[str]:
    """The command line, as soon as it adapts."""
    words = ["train", "--source", tiny.source, "--target", tiny.target, "--out", run]
    words += ["--config", options, "--cache", tiny.cache, "--resume"]
    process = subprocess.Popen(
        [sys.executable, "-m", "scda.adapt", *map(str, words)],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert process.stderr is not None
    for line in process.stderr:
        if line.startswith("source: "):
            break
    return process


@pytest.mark.slow
def test_a_run_killed_at_random_moments_ends_in_the_same_bundle(
    tiny: TinyData, tmp_path: Path
) -> None:
    options = tmp_path / "options.toml"
    lines = ('backbone = "conv4"', f'weights = "{tiny.weights}"', 'novel = "yes"', "k_max = 6")
    options.write_text("\n".join((*lines, "pretrain_steps = 200", "round_steps = 150")))
    process, began = start(tmp_path / "whole", tiny, options), time.monotonic()
    assert process.communicate()[1] is not None
    seconds = time.monotonic() - began
    assert process.returncode == 0

    rng, deaths = random.Random(0), 0
    while (process := start(tmp_path / "killed", tiny, options)) and deaths < 30:
        try:
            process.communicate(timeout=rng.uniform(0, seconds / 2))
            break
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            deaths += process.returncode == -signal.SIGKILL
    assert process.returncode == 0
    assert deaths > 2
    ids = {read_manifest(tmp_path / name / "bundle").id for name in ("whole", "killed")}
    assert len(ids) == 1
