import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow.dataset import dataset

from scda.models.errors import DataError, ScdaError, UsageError
from scda.models.predictor import Predictor, load_predictor
from scda.serve.labelling.label import label
from scda.serve.labelling.outputs import Options
from scda.serve.labelling.ray import engine
from scda.serve.labelling.ray.attempts import MOST_DEATHS, Attempt
from scda.serve.labelling.ray.cluster import cpus_per_gpu, ray_cluster, use_gpus
from scda.serve.labelling.ray.engine import label_on_ray
from scda.serve.labelling.ray.parts import JOB, SUCCESS, PartCounts
from scda.serve.labelling.ray.worker import PartLabeller, WorkerPlan
from scda.serve.labelling.sources import FileSelection
from tests.bundles import RGB, picture
from tests.models.decoding.test_decoding import DEADLY

DISCOVERED = ("discovered-000", "discovered-001")
# Ray's own, when it is imported and when it ends.
pytestmark = [
    pytest.mark.filterwarnings(r"ignore:`use_\w+` is deprecated:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture(scope="module")
def cluster() -> Iterator[ModuleType]:
    """One for all tests: a start takes seconds."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_worker_niceness", "0")  # at Ray's 15, workers starve on a busy machine
        with ray_cluster() as ray:
            yield ray


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Good files and bad ones, among them a name that is not UTF-8."""
    folder = tmp_path_factory.mktemp("made") / "photos"
    (folder / "sub").mkdir(parents=True)
    for i in range(40):
        (folder / "sub" / f"{i:02d}.jpg").write_bytes(picture(list(RGB)[i % len(RGB)]))
    odd = {
        "cut.jpg": picture("red")[:400],
        "none.jpg": b"",
        "text": b"hello",
        ".hidden": b"x",
        os.fsdecode(b"\xff.jpg"): picture("blue"),
    }
    for name, data in odd.items():
        (folder / name).write_bytes(data)
    return folder


def rows(table: pa.Table) -> list[dict[str, Any]]:
    return sorted(table.to_pylist(), key=lambda row: str(row["path"]))


def local_rows(predictor: Predictor, out: Path, *inputs: Path, **given: Any) -> pa.Table:
    label(predictor, inputs, [str(out)], **given)
    return pq.read_table(out)


@pytest.mark.usefixtures("cluster")
def test_rows_schema_and_summary_are_those_of_the_local_engine(
    predictor: Predictor, photos: Path, tmp_path: Path
) -> None:
    out = tmp_path / "rows.parquet"
    summary = label_on_ray(predictor, [str(photos)], [str(out)])
    local = local_rows(predictor, tmp_path / "local.parquet", photos)
    parts = dataset(out)
    assert rows(parts.to_table()) == rows(local)
    assert parts.schema.equals(local.schema, check_metadata=True)
    assert summary.labels == {"blue": 9, "green": 8, "red": 8, **dict.fromkeys(DISCOVERED, 8)}
    assert summary.errors == {"cannot_decode": 1, "empty": 1, "not_an_image": 1}
    assert (summary.hidden, summary.provider) == (1, "cpu")
    assert {path.name for path in tmp_path.iterdir()} == {"rows.parquet", "local.parquet"}
    (part,) = {path.name for path in out.iterdir()} - {JOB, SUCCESS}
    assert part.startswith("part-0000-0000000-")


@pytest.mark.usefixtures("cluster")
def test_from_storage_to_storage(predictor: Predictor, photos: Path, tmp_path: Path) -> None:
    out = tmp_path / "far" / "1%20?x=#y" / "rows"  # no part of it is quoted
    uris = [f"file://{photos}/sub", f"file://{photos}/text", f"file://{photos}/none.jpg"]
    label_on_ray(predictor, uris, [f"file://{out}"], selection=FileSelection(exclude=("*/3?.jpg",)))
    said = {row["path"]: row["error_code"] for row in dataset(out).to_table().to_pylist()}
    sub = [f"{uris[0]}/{i:02d}.jpg" for i in range(30)]
    assert said == {**dict.fromkeys(sub), uris[1]: "not_an_image", uris[2]: "empty"}
    assert (out / SUCCESS).is_file()
    with pytest.raises(UsageError, match=r"rows: already exists; .* or --resume to continue"):
        label_on_ray(predictor, uris, [f"file://{out}"])


@pytest.mark.slow
@pytest.mark.usefixtures("cluster")
def test_options_and_relative_inputs_mean_the_same(
    predictor: Predictor, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(photos.parent)
    inputs = ["photos/sub/0*.jpg", "photos/text"]
    options = Options(top=2, min_confidence=0.981)
    label_on_ray(predictor, inputs, [str(tmp_path / "rows")], options=options)
    paths = list(map(Path, inputs))
    local = local_rows(predictor, tmp_path / "local.parquet", *paths, options=options)
    assert rows(dataset(tmp_path / "rows").to_table()) == rows(local)
    assert {row["review"] for row in rows(local)} == {True, False, None}


@pytest.mark.slow
@pytest.mark.usefixtures("cluster")
def test_too_many_errors_stop_it_and_resuming_continues(
    predictor: Predictor, photos: Path, tmp_path: Path
) -> None:
    out, seen = tmp_path / "rows", []
    given: dict[str, Any] = {"batch_size": 1}
    with pytest.raises(DataError, match=r"files failed, .*expected 2 at most \(--max-errors\)"):
        label_on_ray(predictor, [str(photos)], [str(out)], max_errors=2, **given)
    assert not (out / SUCCESS).exists()
    with pytest.raises(UsageError, match=r"already exists; .* or --resume to continue"):
        label_on_ray(predictor, [str(photos)], [str(out)], **given)
    with pytest.raises(UsageError, match="cannot resume: top was None, is 2; pass another --out"):
        label_on_ray(
            predictor, [str(photos)], [str(out)], resume=True, options=Options(top=2), **given
        )
    summary = label_on_ray(
        predictor,
        [str(photos)],
        [str(out)],
        resume=True,
        max_errors=3,
        on_progress=lambda *numbers: seen.append(numbers),
        **given,
    )
    local = local_rows(predictor, tmp_path / "local.parquet", photos, **given)
    assert rows(dataset(out).to_table()) == rows(local)
    assert summary.num_files == 44
    assert summary.resumed > 0
    assert seen[-1] == (44, 44, 3)
    again = label_on_ray(predictor, [str(photos)], [str(out)], resume=True, **given)
    assert (again.resumed, again.labels, again.errors) == (44, summary.labels, summary.errors)
    (photos / "new.jpg").write_bytes(picture("red"))
    try:
        with pytest.raises(
            UsageError, match=r"files up to .* have changed; pass another --out to start again$"
        ):
            label_on_ray(predictor, [str(photos)], [str(out)], resume=True, **given)
    finally:
        (photos / "new.jpg").unlink()


@pytest.mark.slow
@pytest.mark.usefixtures("cluster")
def test_a_killed_actor_loses_nothing(
    predictor: Predictor, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed = tmp_path / "killed"

    class DeadlyOnce(PartLabeller):
        def _label(self, part: str, *given: Any) -> PartCounts:
            counts = super()._label(part, *given)
            if not killed.exists():  # its rows are written, and nobody knows
                killed.touch()
                os.kill(os.getpid(), signal.SIGKILL)
            return counts

    monkeypatch.setattr(engine, "PartLabeller", DeadlyOnce)
    label_on_ray(predictor, [str(photos)], [str(tmp_path / "rows")], batch_size=1)
    assert killed.exists()
    local = local_rows(predictor, tmp_path / "local.parquet", photos, batch_size=1)
    assert rows(dataset(tmp_path / "rows").to_table()) == rows(local)


def let_start_with(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the decoding processes of workers run the sitecustomize.py of a folder."""

    class AmongDeadlyOnes(PartLabeller):
        def __init__(self, plan: WorkerPlan) -> None:
            paths = filter(None, [os.environ.get("PYTHONPATH")])
            os.environ["PYTHONPATH"] = os.pathsep.join([str(folder), *paths])
            super().__init__(plan)

    monkeypatch.setattr(engine, "PartLabeller", AmongDeadlyOnes)


@pytest.mark.slow
@pytest.mark.usefixtures("cluster")
def test_a_file_that_kills_what_decodes_it_is_a_row(
    predictor: Predictor, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sitecustomize.py").write_text(DEADLY)
    (tmp_path / "die.jpg").write_bytes(b"die")
    names = tmp_path / "names"
    names.write_text(f"{photos}/sub/00.jpg\n{tmp_path}/die.jpg\nfile://{photos}/sub/01.jpg\n")

    let_start_with(tmp_path, monkeypatch)
    label_on_ray(predictor, [], [str(tmp_path / "rows")], files_from=str(names))
    said = {row["path"]: row for row in dataset(tmp_path / "rows").to_table().to_pylist()}
    assert [row["error_code"] for _, row in sorted(said.items())].count(None) == 2
    died = said[f"{tmp_path}/die.jpg"]
    assert died["error_code"] == "cannot_decode"
    assert died["error"] == f"the file ended the decoding process ({-signal.SIGSEGV})"


@pytest.mark.slow
@pytest.mark.usefixtures("cluster")
def test_a_file_that_always_kills_its_worker_is_a_row_and_the_others_keep_theirs(
    predictor: Predictor, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deaths = tmp_path / "deaths"
    deadly = DEADLY.replace("os.getpid()", "os.getppid()").replace("SIGSEGV", "SIGKILL")
    counted = f"open({str(deaths)!r}, 'a').write('x'); os.kill"
    (tmp_path / "sitecustomize.py").write_text(deadly.replace("os.kill", counted))
    folder = shutil.copytree(photos, tmp_path / "photos")
    (folder / "die.jpg").write_bytes(b"die")

    let_start_with(tmp_path, monkeypatch)
    given: dict[str, Any] = {"batch_size": 2}
    summary = label_on_ray(predictor, [str(folder)], [str(tmp_path / "rows")], **given)
    assert summary.num_files == 45
    assert len(deaths.read_text()) == 2 * MOST_DEATHS
    found = {row["path"]: row for row in rows(dataset(tmp_path / "rows").to_table())}
    died = found["die.jpg"]
    assert died["error_code"] == "cannot_decode"
    assert died["error"] == "the file ended its worker 3 times"
    (folder / "die.jpg").write_bytes(b"die of text")  # an error as well: the same batches
    local = rows(local_rows(predictor, tmp_path / "local.parquet", folder, **given))
    assert len(local) == len(found)
    assert [row for row in local if row["path"] != "die.jpg"] == [
        row for row in rows(dataset(tmp_path / "rows").to_table()) if row["path"] != "die.jpg"
    ]


@pytest.mark.usefixtures("cluster")
def test_an_error_of_a_worker_is_that_of_the_command(
    predictor: Predictor, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class SeesNothing(PartLabeller):
        def _begin(self, part: str) -> Attempt:
            raise UsageError("the machine does not see it")

    monkeypatch.setattr(engine, "PartLabeller", SeesNothing)
    with pytest.raises(UsageError, match=r"^the machine does not see it$"):
        label_on_ray(predictor, [str(photos)], [str(tmp_path / "rows")])


@pytest.mark.slow
@pytest.mark.usefixtures("cluster")
def test_what_no_actor_can_load_is_told_and_leaves_nothing(
    bundle: Path, photos: Path, tmp_path: Path
) -> None:
    predictor = load_predictor(shutil.copytree(bundle, tmp_path / "bundle"), threads=1)
    (tmp_path / "bundle" / "model.onnx").write_bytes(b"x")
    with pytest.raises(ScdaError, match=r"Ray failed: .*model.onnx is damaged"):
        label_on_ray(predictor, [str(photos)], [str(tmp_path / "rows")])
    assert [path.name for path in tmp_path.iterdir()] == ["bundle"]


def test_the_command_uses_the_cluster_of_ray_address(
    cluster: ModuleType, bundle: Path, photos: Path, tmp_path: Path
) -> None:
    address = cluster.get_runtime_context().gcs_address
    before = len(cluster.nodes())
    words = ["label", str(bundle), str(photos), "--engine", "ray", "--out", str(tmp_path / "rows")]
    done = subprocess.run(
        [sys.executable, "-m", "scda.adapt", *words, "--summary", tmp_path / "summary.json"],
        env={**os.environ, "RAY_ADDRESS": address},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 3, done.stderr
    assert len(cluster.nodes()) == before
    assert json.loads((tmp_path / "summary.json").read_text())["failed"] == 3
    assert dataset(tmp_path / "rows").count_rows() == 44
    assert done.stdout == ""
    lines = [line for line in done.stderr.splitlines() if "RAY_BACKEND_LOG_LEVEL" not in line]
    assert lines[0].startswith(("labelling: 44", "44 files in "))  # slow machines report progress


@pytest.mark.parametrize(
    ("inputs", "outs", "given", "message"),
    [
        (["in"], [], {}, "--out is missing: expected one folder"),
        (["in"], ["-"], {}, "--out -: expected one folder"),
        (["in"], ["a", "b"], {}, "--out a, b: expected one folder"),
        (["in"], ["rows.csv"], {}, "rows.csv: expected one folder"),
        (["in"], ["full"], {}, "full: already exists"),
        (["in"], ["full"], {"resume": True}, "full: already exists"),
        (["in"], ["full/file"], {}, "full/file: already exists"),
        (["in"], ["in/rows"], {}, "in/rows: inside an input"),
        (["in"], ["none/rows"], {}, "none/rows: no folder"),
        (["none"], ["rows"], {}, "none: no such file or folder"),
        (["in", "file:///in"], ["rows"], {}, "found both local paths and URIs"),
        (["file:///in", "file:///in/x"], ["rows"], {}, "in/x: inside another input"),
        (["file:///in"], ["file:///in/rows"], {}, "in/rows: inside an input"),
        ([], ["rows"], {"files_from": "-"}, "expected a list, or a folder of lists"),
        ([], ["rows"], {"files_from": "none"}, "expected a list, or a folder of lists"),
        ([], ["rows"], {"files_from": "/dev/null"}, "expected a list, or a folder of lists"),
        ([], ["rows"], {}, "expected either IMAGES or --files-from"),
        (["in"], ["rows"], {"options": Options(top=9)}, "--top 9"),
        (
            ["in"],
            ["rows"],
            {"options": Options(summary=Path("in/file"))},
            "file: exists and is not",
        ),
        (["in"], ["rows"], {"options": Options(summary=Path("in"))}, "in: is no regular file"),
        (["in"], ["rows"], {"options": Options(summary=Path("none/s"))}, "none/s: no folder none"),
    ],
)
def test_what_is_refused_before_ray_starts(
    predictor: Predictor,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    inputs: list[str],
    outs: list[str],
    given: dict[str, Any],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("in", "full"):
        Path(name).mkdir()
        Path(name, "file").write_bytes(picture("red"))
    monkeypatch.setitem(sys.modules, "ray", None)  # importing it now fails
    with pytest.raises(UsageError, match=message):
        label_on_ray(predictor, inputs, outs, **given)


def test_no_file_is_told(predictor: Predictor, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    with pytest.raises(DataError, match="no file to label found in"):
        label_on_ray(predictor, [str(tmp_path / "in")], [str(tmp_path / "rows")])


def test_without_the_extra_one_line_says_what_to_install(
    predictor: Predictor, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UsageError, match=r"pip install 'scda\[ray\]'"):
        label_on_ray(predictor, [str(photos)], [str(tmp_path / "rows")])


def test_an_address_where_no_cluster_is_is_named_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ray.is_initialized", lambda: False)
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
    with (
        pytest.raises(
            UsageError, match=r"RAY_ADDRESS 127\.0\.0\.1:1: no cluster answers: .*refused"
        ),
        ray_cluster(),
    ):
        pass


def test_a_machine_too_busy_to_start_ray_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def init(*given: Any, **more: Any) -> None:
        raise Exception("The current node timed out during startup.\nMore of it.")

    monkeypatch.setattr("ray.is_initialized", lambda: False)
    monkeypatch.setattr("ray.init", init)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    with (
        pytest.raises(ScdaError, match="Ray cannot start on this machine: The current node timed"),
        ray_cluster(),
    ):
        pass


def test_actors_get_gpus_where_there_are_some() -> None:
    with_gpus: Any = SimpleNamespace(cluster_resources=lambda: {"CPU": 8.0, "GPU": 2.0})
    without: Any = SimpleNamespace(cluster_resources=lambda: {"CPU": 8.0})
    assert [use_gpus(with_gpus, name) for name in ("auto", "cpu", "cuda")] == [True, False, True]
    assert [use_gpus(without, name) for name in ("auto", "cpu")] == [False, False]
    with pytest.raises(UsageError, match="the cluster has no GPU"):
        use_gpus(without, "cuda")
    with pytest.raises(UsageError, match="provider 'tpu'"):
        use_gpus(without, "tpu")


def test_every_gpu_gets_its_share_of_the_cpus() -> None:
    machines = [({"CPU": 96.0, "GPU": 8.0}, True), ({"CPU": 70.0, "GPU": 7.0}, True)]
    machines += [({"CPU": 64.0}, True), ({"CPU": 1.0, "GPU": 8.0}, False)]
    nodes = [{"Resources": resources, "Alive": alive} for resources, alive in machines]
    some: Any = SimpleNamespace(nodes=lambda: nodes)
    none: Any = SimpleNamespace(nodes=list)
    assert (cpus_per_gpu(some), cpus_per_gpu(none)) == (10, 1)
