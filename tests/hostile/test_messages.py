"""Messages name the file that is meant, and nothing that is not there."""

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import pytest

from scda.adapt.cli import errors
from scda.adapt.data.dataset import plan
from scda.adapt.export import class_files
from scda.adapt.pipeline.run import train
from scda.adapt.runs.folder import RunFolder
from scda.adapt.runs.tables import write_table
from scda.adapt.runtime.progress import Reporter
from scda.models.errors import DataError
from scda.models.files import write_atomically
from tests.conftest import TinyData


def full(*unused: Any, **options: Any) -> NoReturn:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def told(write: Callable[[], object], capsys: pytest.CaptureFixture[str]) -> str:
    """Return what the command line says of an error."""

    def app(**unused: object) -> None:
        write()

    assert errors._exit_code(app) == 2  # type: ignore[arg-type]  # called as an application is
    return capsys.readouterr().err


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_full_disk_is_told_with_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], call: str
) -> None:
    monkeypatch.setattr(os, call, full)
    report, table = tmp_path / "report.html", tmp_path / "map.csv"
    writes = {report: lambda: write_atomically(report, "x"), table: lambda: table_of(table)}
    for path, write in writes.items():
        said = told(write, capsys)
        assert said == f"scda-adapt: {path}: No space left on device\n"
    assert list(tmp_path.iterdir()) == []


def table_of(path: Path) -> None:
    write_table(path, ("path",), [("a.jpg",)])


def test_a_full_disk_is_told_with_the_metrics(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Path, "open", full)
    said = told(lambda: RunFolder(tmp_path).append({}), capsys)
    assert said == f"scda-adapt: {tmp_path}/metrics.jsonl: No space left on device\n"


def test_a_full_disk_is_told_with_the_bundle(
    tiny: TinyData,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(class_files, "write_index", full)

    def run() -> None:
        with Reporter(quiet=True) as reporter:
            train(tiny.job(tmp_path / "run", rounds=0, k_max=4), reporter)

    said = told(run, capsys)
    assert f"{tmp_path}/run/bundle: cannot write: No space left on device" in said


@pytest.mark.parametrize("bad", ["source", "target", "one class"])
def test_no_table_is_named_that_is_not_written(
    tiny: TinyData, tmp_path: Path, capsys: pytest.CaptureFixture[str], bad: str
) -> None:
    folders = {"source": tmp_path / "source", "target": tmp_path / "target"}
    for name in ("cat/a.jpg", "dog/b.jpg"):
        path = folders["source"] / name
        path.parent.mkdir(parents=True)
        good = bad == "target" or (bad == "one class" and name.startswith("cat"))
        original = next((tiny.source / "red_square").iterdir())
        path.write_bytes(original.read_bytes() if good else b"no image")
    folders["target"].mkdir()
    for name in ("c.jpg", "d.jpg"):
        (folders["target"] / name).write_bytes(b"no image")
    job = tiny.job(tmp_path / "run", **folders)
    for attempt in (lambda: plan(job), lambda: trained(job)):
        with pytest.raises(DataError) as refused:
            attempt()
        assert "files are not usable, the first of them " in str(refused.value)
        assert "this looks like" in str(refused.value)
    assert "rejected.csv" not in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def trained(job: Any) -> None:
    with Reporter() as reporter:
        train(job, reporter)


def test_a_warning_names_the_table_once_it_is_there(
    tiny: TinyData, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = tmp_path / "source"
    for path in tiny.source.rglob("*.png"):
        copy = source / path.relative_to(tiny.source)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(path.read_bytes())
    (source / "red_square" / "notes.txt").write_text("no image")
    trained(tiny.job(tmp_path / "run", source=source, rounds=0))
    table = tmp_path / "run" / "rejected.csv"
    assert f"1 files are not usable images; {table} lists them" in capsys.readouterr().err
    assert table.is_file()
