"""Three machines that share nothing but an object store, on one: each with one CPU."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import chdir, contextmanager
from pathlib import Path
from typing import Any

import psutil
import pyarrow.parquet as pq
import pytest
from pyarrow.fs import FileSelector, FileSystem, FileType

from scda.models.decoding.stored import file_system_of
from scda.models.errors import UsageError
from scda.models.predictor import Predictor
from scda.serve.labelling.label import label
from scda.serve.labelling.outputs import Options
from scda.serve.labelling.ray import engine
from scda.serve.labelling.ray.cluster import ray_cluster
from scda.serve.labelling.ray.engine import label_on_ray
from scda.serve.labelling.ray.parts import DRIVER, JOB, PartCounts
from scda.serve.labelling.ray.worker import PartLabeller, WorkerPlan
from tests.bundles import RGB, picture

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore"),  # of Ray and of the store
]
NUM_GOOD, NUM_BAD = 220, 4
# Without a log monitor a machine starts sooner: each start is given 30 seconds.
EACH = {"num_cpus": 1, "object_store_memory": 80_000_000, "include_log_monitor": False}
THRESHOLD = "RAY_memory_usage_threshold"
MORE_BYTES = 1_500_000_000  # than is used at the start; other programs come and go


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """An object store that every machine finds by its environment."""
    pytest.importorskip("moto.server")
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    words = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    patch = pytest.MonkeyPatch()
    for name, value in {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
        "OMP_NUM_THREADS": "1",
        "RAY_worker_niceness": "0",  # at Ray's 15, workers starve on a busy machine
    }.items():
        patch.setenv(name, value)
    with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        try:
            _wait_for(port)
            yield
        finally:
            server.kill()
            patch.undo()


def _wait_for(port: int) -> None:
    for _ in range(600):
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            time.sleep(0.1)
        else:
            return
    raise AssertionError("the store does not start")


class Machines:
    """A Ray cluster of machines with one CPU, each started in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        from ray.cluster_utils import Cluster

        self.folder = folder
        self._nodes: list[Any] = []
        with chdir(self._new_folder()):
            self._cluster: Any = Cluster(
                initialize_head=True,
                head_node_args={
                    **EACH,
                    "include_dashboard": False,
                    "no_monitor": True,
                },
            )
        self.fill()

    @property
    def address(self) -> str:
        return str(self._cluster.address)

    def fill(self) -> None:
        """Have three machines."""
        while len(self._nodes) < 2:
            with chdir(self._new_folder()):
                node = self._cluster.add_node(**EACH)
            self._nodes.append(node)

    def kill_one(self) -> None:
        """End a machine that is not the driver's, without notice."""
        self._cluster.remove_node(self._nodes.pop(0), allow_graceful=False)

    @contextmanager
    def one_of_little_memory(self) -> Iterator[None]:
        """Have another machine, whose memory monitor kills a worker that takes `MORE_BYTES`."""
        memory = psutil.virtual_memory()
        threshold = (memory.total - memory.available + MORE_BYTES) / memory.total
        with pytest.MonkeyPatch.context() as patch, chdir(self._new_folder()):
            patch.setenv(THRESHOLD, str(threshold))
            patch.setenv("RAY_memory_monitor_refresh_ms", "100")
            patch.setenv("RAY_BACKEND_LOG_LEVEL", "info")
            node = self._cluster.add_node(**EACH)
        try:
            yield
        finally:
            self._cluster.remove_node(node, allow_graceful=False)

    def log(self) -> str:
        """Return what the machines have logged."""
        folder = Path(self._cluster.head_node.get_logs_dir_path())
        return "".join(path.read_text() for path in folder.glob("raylet*.out"))

    def end(self) -> None:
        self._cluster.shutdown()

    def _new_folder(self) -> Path:
        folder = self.folder / f"machine-{len(list(self.folder.iterdir()))}"
        folder.mkdir()
        return folder


@pytest.fixture(scope="module")
def machines(store: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machines]:
    patch = pytest.MonkeyPatch()
    given = Machines(tmp_path_factory.mktemp("machines"))
    patch.setenv("RAY_ADDRESS", given.address)
    try:
        with ray_cluster():
            yield given
    finally:
        given.end()
        patch.undo()


@pytest.fixture(scope="module")
def photos(store: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files, also stored as s3://photos/in/..., with lists of them as s3://photos/lists/..."""
    folder = tmp_path_factory.mktemp("made") / "photos"
    (folder / "a b").mkdir(parents=True)
    data = {f"a b/{i:03d}%2F#?é.jpg": picture(list(RGB)[i % 5]) for i in range(NUM_GOOD)}
    data |= {
        "cut.jpg": picture("red")[:400],
        "text.jpg": b"hello",
        "z/b.gif": b"x",
        "z/a.txt": b"y",
    }
    FileSystem.from_uri("s3://photos/?allow_bucket_creation=true")[0].create_dir("photos")
    for name, content in data.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(content)
        stored(f"photos/in/{name}", content)
    uris = [f"s3://photos/in/{name}" for name in sorted(data)]
    stored("photos/lists/1.txt", "\n".join(uris[:100]).encode())
    stored("photos/lists/2.txt", "\n".join(uris[100:]).encode())
    return folder


def stored(path: str, content: bytes) -> None:
    system, _ = file_system_of("s3://photos")
    with system.open_output_stream(path) as file:
        file.write(content)


def rows(uri: str) -> list[dict[str, Any]]:
    """Rows of all parts, in the order of their names."""
    system, path = file_system_of(uri)
    found: list[dict[str, Any]] = pq.read_table(path, filesystem=system).to_pylist()
    return found


@pytest.fixture(scope="module")
def wanted(
    predictor: Predictor, photos: Path, tmp_path_factory: pytest.TempPathFactory
) -> list[dict[str, Any]]:
    """Rows of the local engine."""
    out = tmp_path_factory.mktemp("local") / "rows.parquet"
    label(predictor, [photos], [str(out)], batch_size=1)
    found: list[dict[str, Any]] = pq.read_table(out).to_pylist()
    assert len(found) == NUM_GOOD + NUM_BAD
    return found


@pytest.mark.usefixtures("machines", "photos")
def test_every_machine_labels_and_rows_are_those_of_the_local_engine(
    predictor: Predictor,
    wanted: list[dict[str, Any]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Noted(PartLabeller):
        def __init__(self, plan: WorkerPlan) -> None:
            super().__init__(plan)
            (tmp_path / Path.cwd().name).touch()

        def _label(self, part: str, *given: Any) -> PartCounts:
            while len(list(tmp_path.iterdir())) < 3:  # until every machine has a worker
                time.sleep(0.1)
            return super()._label(part, *given)

    monkeypatch.setattr(engine, "PartLabeller", Noted)
    seen: list[tuple[int, int, int]] = []
    out = "s3://photos/out/equal"
    summary = label_on_ray(
        predictor,
        ["s3://photos/in"],
        [out],
        batch_size=1,
        on_progress=lambda *numbers: seen.append(numbers),
    )
    assert rows(out) == wanted
    assert (summary.num_files, summary.num_failed) == (NUM_GOOD + NUM_BAD, NUM_BAD)
    assert seen[-1] == (NUM_GOOD + NUM_BAD, NUM_GOOD + NUM_BAD, NUM_BAD)
    assert len(seen) == 7


@pytest.mark.usefixtures("photos")
def test_a_machine_that_dies_costs_only_time(
    machines: Machines, predictor: Predictor, wanted: list[dict[str, Any]]
) -> None:
    out = "s3://photos/out/machine"
    killed: list[int] = []

    def kill_once(done: int, total: int, failed: int) -> None:
        if not killed:
            machines.kill_one()
            killed.append(done)

    try:
        label_on_ray(predictor, ["s3://photos/in"], [out], batch_size=1, on_progress=kill_once)
    finally:
        machines.fill()
    assert killed[0] < NUM_GOOD
    assert rows(out) == wanted


@pytest.mark.usefixtures("machines", "photos")
def test_a_worker_killed_before_and_after_it_wrote_leaves_one_row_per_file(
    predictor: Predictor,
    wanted: list[dict[str, Any]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Deadly(PartLabeller):
        """Ends as the kernel ends a process for its memory: part 1 unwritten, part 2 written."""

        def _label(self, part: str, *given: Any) -> PartCounts:
            self._die_once("0000001", part)
            counts = super()._label(part, *given)
            self._die_once("0000002", part)
            return counts

        def _die_once(self, number: str, part: str) -> None:
            if f"-{number}-" in part and not (tmp_path / number).exists():
                (tmp_path / number).touch()
                os.kill(os.getpid(), signal.SIGKILL)

    monkeypatch.setattr(engine, "PartLabeller", Deadly)
    out = "s3://photos/out/worker"
    label_on_ray(predictor, ["s3://photos/in"], [out], batch_size=1)
    assert {path.name for path in tmp_path.iterdir()} == {"0000001", "0000002"}
    assert rows(out) == wanted


@pytest.mark.usefixtures("photos")
def test_a_worker_killed_by_the_memory_monitor_of_ray_costs_only_time(
    machines: Machines,
    predictor: Predictor,
    wanted: list[dict[str, Any]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    grown = tmp_path / "grown"

    class Growing(PartLabeller):
        def _label(self, part: str, *given: Any) -> PartCounts:
            if THRESHOLD in os.environ and not grown.exists():
                grown.touch()
                self._grow()
            for _ in range(1200):  # until the machine of little memory has a part
                if grown.exists():
                    return super()._label(part, *given)
                time.sleep(0.1)
            raise AssertionError("the machine of little memory has no worker")

        def _grow(self) -> None:
            held: list[bytes] = []
            while len(held) < 60:  # three times as much
                held.append(b"x" * (MORE_BYTES // 20))
                time.sleep(0.2)
            raise AssertionError("the worker was not killed")

    monkeypatch.setattr(engine, "PartLabeller", Growing)
    out, killed = "s3://photos/out/monitor", "kill details: Memory on the node"
    assert killed not in machines.log()
    with machines.one_of_little_memory():
        label_on_ray(predictor, ["s3://photos/in"], [out], batch_size=1)
    assert killed in machines.log()
    assert rows(out) == wanted


@pytest.mark.usefixtures("machines", "photos")
def test_of_two_drivers_of_one_labelling_the_later_one_finishes_it(
    bundle: Path, predictor: Predictor, wanted: list[dict[str, Any]]
) -> None:
    out = "s3://photos/out/two"
    words = ["s3://photos/in", "--out", out, "--batch-size", "1", "--resume"]
    later: list[subprocess.Popen[str]] = []

    def recorded() -> Any:
        system, path = file_system_of(f"{out}/{JOB}")
        with system.open_input_file(path) as file:
            return json.loads(file.read())[DRIVER]

    def start_later_once(done: int, total: int, failed: int) -> None:
        if not later:
            earlier = recorded()
            later.append(command(bundle, *words))
            while recorded() == earlier:
                assert later[0].poll() is None
                time.sleep(0.05)

    with pytest.raises(
        UsageError, match=r"the same labelling was started again .* stop one of the two$"
    ):
        label_on_ray(
            predictor, ["s3://photos/in"], [out], batch_size=1, on_progress=start_later_once
        )
    _, said = later[0].communicate()
    assert later[0].returncode == 3, said
    assert rows(out) == wanted


def command(bundle: Path, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "scda.adapt", "label", str(bundle), *words, "--engine", "ray"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


def parts(uri: str) -> dict[str, Any]:
    """Return when each part was written."""
    system, path = file_system_of(uri)
    found = system.get_file_info(FileSelector(path, allow_not_found=True))
    return {
        entry.base_name: entry.mtime
        for entry in found
        if entry.type == FileType.File and entry.base_name.startswith("part-")
    }


@pytest.mark.usefixtures("machines", "photos")
def test_a_killed_driver_resumes_where_it_stopped(
    bundle: Path, wanted: list[dict[str, Any]], tmp_path: Path
) -> None:
    out, summary = "s3://photos/out/driver", tmp_path / "summary.json"
    words = ["s3://photos/in", "--out", out, "--batch-size", "1", "--summary", str(summary)]
    with command(bundle, *words) as driver:
        while not (before := parts(out)):
            assert driver.poll() is None
            time.sleep(0.05)
        driver.kill()
    with command(bundle, *words, "--resume") as driver:
        _, said = driver.communicate()
        assert driver.returncode == 3, said
    assert rows(out) == wanted
    assert before.items() <= parts(out).items()  # not written again
    told = json.loads(summary.read_text())
    assert (told["files"], told["failed"]) == (NUM_GOOD + NUM_BAD, NUM_BAD)
    assert told["resumed"] >= 32 * len(before)


@pytest.mark.usefixtures("machines", "photos")
def test_lists_in_parts_errors_and_summary_are_those_of_the_local_engine(
    bundle: Path, predictor: Predictor, photos: Path, tmp_path: Path
) -> None:
    out, summary = "s3://photos/out/lists", tmp_path / "summary.json"
    words = ["--files-from", "s3://photos/lists", "--out", out, "--batch-size", "1"]
    with command(bundle, *words, "--max-errors", "1") as driver:
        _, said = driver.communicate()
        assert driver.returncode == 4, said
    assert "expected 1 at most (--max-errors); rerun with --resume to continue" in said
    words += ["--max-errors", "4", "--summary", str(summary), "--resume"]
    with command(bundle, *words) as driver:
        _, said = driver.communicate()
        assert driver.returncode == 3, said
    local = tmp_path / "local.json"
    uris = (f"s3://photos/in/{path.relative_to(photos)}" for path in photos.rglob("*.*"))
    assert [row["path"] for row in rows(out)] == sorted(uris)
    label(predictor, [photos], [str(tmp_path / "local.csv")], options=Options(summary=local))
    told, expected = json.loads(summary.read_text()), json.loads(local.read_text())
    changing = {"seconds", "images_per_second", "resumed"}
    assert {name: told[name] for name in told.keys() - changing} == {
        name: expected[name] for name in expected.keys() - changing
    }
