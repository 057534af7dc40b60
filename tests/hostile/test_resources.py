"""Options that ask for more threads, processes or memory than any machine has, and SIGTERM."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from scda.adapt.config import TrainConfig
from scda.models.cpus import usable_cpus
from scda.models.errors import UsageError
from scda.models.predictor import Predictor
from scda.models.session import Session
from scda.serve.http.settings import Settings
from scda.serve.labelling import label as label_module
from scda.serve.labelling.label import label_rows
from scda.serve.labelling.pipeline import running_batches
from scda.serve.labelling.ray.cluster import threads_of_worker
from scda.serve.workers.command import serve
from tests.bundles import picture
from tests.conftest import Scda

HUGE = 10**30


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    folder = tmp_path / "photos"
    folder.mkdir()
    for number in range(3):
        (folder / f"{number}.jpg").write_bytes(picture("red"))
    return folder


@pytest.mark.parametrize("threads", [100_000, HUGE])
def test_a_model_has_a_thread_per_cpu_at_most(hostile_bundle: Path, threads: int) -> None:
    model = hostile_bundle / "model.onnx"
    assert Session(model, provider="cpu", threads=threads).threads == usable_cpus()
    with pytest.raises(UsageError, match="threads is -1; expected 0 or more"):
        Session(model, provider="cpu", threads=-1)


@pytest.mark.parametrize("workers", [5000, HUGE])
def test_a_labelling_has_a_process_per_batch_at_most(
    predictor: Predictor, photos: Path, monkeypatch: pytest.MonkeyPatch, workers: int
) -> None:
    asked: list[int] = []

    def noted(predictor: Predictor, workers: int, *options: Any) -> Any:
        asked.append(workers)
        return running_batches(predictor, 0, *options)

    monkeypatch.setattr(label_module, "running_batches", noted)
    assert len(list(label_rows(predictor, [photos], workers=workers, batch_size=2))) == 3
    assert asked == [2]


@pytest.mark.parametrize(
    "options", [{"batch_size": HUGE}, {"batch_size": 0}, {"batch_size": -8}, {"workers": -1}]
)
def test_numbers_out_of_range_are_refused(
    predictor: Predictor, photos: Path, options: dict[str, int]
) -> None:
    with pytest.raises(UsageError, match=r"^--(batch-size|workers) -?\d+; expected [01] "):
        label_rows(predictor, [photos], **options)  # type: ignore[arg-type] # ints alone


@pytest.mark.parametrize(
    "name", ["batch_size", "image_size", "k_max", "k", "rounds", "restarts", "seed"]
)
def test_options_of_training_have_an_upper_bound(name: str) -> None:
    options: dict[str, Any] = {name: HUGE}
    with pytest.raises(UsageError, match=rf"{name} is 1000000\d*; expected .*at most \d+"):
        TrainConfig(**options)


@pytest.mark.parametrize("workers", [5000, HUGE])
def test_a_server_has_no_more_processes_than_the_machine_can_use(
    hostile_bundle: Path, workers: int
) -> None:
    with pytest.raises(UsageError, match=r"workers: expected at most \d+ on this machine"):
        serve(hostile_bundle, workers=workers, port=1)


@pytest.mark.parametrize(
    ("asked", "cpus", "expected"),
    [(0, [4], 1), (3, [4], 3), (100_000, [4, 16, 2], 16), (HUGE, [0.5], 1), (HUGE, [], 1)],
)
def test_a_worker_of_a_cluster_fits_on_a_machine(
    asked: int, cpus: list[float], expected: int
) -> None:
    nodes = [{"Alive": True, "Resources": {"CPU": count}} for count in cpus]
    nodes += [{"Alive": False, "Resources": {"CPU": 64.0}}, {"Alive": True, "Resources": {}}]
    ray = ModuleType("ray")
    ray.nodes = lambda: nodes  # type: ignore[attr-defined] # of the fake alone
    assert threads_of_worker(ray, asked) == expected


@pytest.mark.parametrize("digits", [30, 5000])
def test_a_setting_of_the_server_may_have_any_number_of_digits(digits: int) -> None:
    with pytest.raises(UsageError, match="SCDA_THREADS is '9"):
        Settings.from_environment({"SCDA_BUNDLE": "b", "SCDA_THREADS": "9" * digits})


@pytest.mark.parametrize("seed", [-1, HUGE])
def test_the_demo_refuses_a_seed_before_it_draws(scda: Scda, tmp_path: Path, seed: int) -> None:
    done = scda("demo", "--out", tmp_path / "demo", "--seed", seed)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert not (tmp_path / "demo").exists()


# Each of these never hears the exception that the handler of SIGTERM raises.
DEAF = {
    "a library that computes": (
        "import sqlite3; sqlite3.connect(':memory:').execute('WITH RECURSIVE c(x) AS "
        "(SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT count(*) FROM c').fetchone()"
    ),
    "an exception that is lost": (
        "import time\n    while True:\n        try:\n            time.sleep(60)\n"
        "        except BaseException:\n            pass"
    ),
    "threads that are waited for": (
        "from concurrent.futures import ThreadPoolExecutor; import time\n"
        "    with ThreadPoolExecutor(1) as pool: pool.submit(time.sleep, 60)"
    ),
    "threads at the end": (
        "import threading, time; threading.Thread(target=time.sleep, args=(60,)).start()\n"
        "    time.sleep(60)"
    ),
    "what is taken down at the end": (
        "import sys, time; late = lambda self, sleep=time.sleep: sleep(60)\n"
        "    sys.late = type('Late', (), {'__del__': late})()\n"
        "    time.sleep(60)"
    ),
}
PROGRAM = """
import typer
from scda.adapt.cli import errors
errors._GRACE_SECONDS = 0.3
app = typer.Typer()
@app.command()
def deaf() -> None:
    print("ready", flush=True)
    {deaf}
errors.run(app)
"""


@pytest.mark.parametrize("deaf", DEAF.values(), ids=DEAF)
def test_a_command_ends_soon_after_sigterm_whatever_it_does(deaf: str) -> None:
    words = [sys.executable, "-c", PROGRAM.format(deaf=deaf)]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(words, **pipes) as process:
        try:
            assert process.stdout
            assert process.stdout.readline() == "ready\n"
            time.sleep(0.2)  # into what is deaf
            os.kill(process.pid, signal.SIGTERM)
            _, said = process.communicate(timeout=30)
        finally:
            process.kill()
    assert (process.returncode, said) == (143, "scda-adapt: terminated\n")
