"""A writer killed while it replaces a folder loses nothing: the old folder is put back."""

import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from scda.adapt.runs.folder import check_finished, open_run
from scda.models.bundle import bundle_folder, read_manifest
from scda.models.errors import UsageError
from scda.models.files import atomic_folder, lock, put_back
from tests.bundles import make_bundle

_KILLED = """
import os, signal, sys
from pathlib import Path
from scda.models.files import atomic_folder

number, rename, calls = int(sys.argv[2]), os.rename, []

def die(*names):
    calls.append(names)
    if len(calls) == number:
        os.kill(os.getpid(), signal.SIGKILL)
    rename(*names)

with atomic_folder(Path(sys.argv[1])) as draft:
    (draft / "new").touch()
    os.rename = die
"""


def write(folder: Path) -> None:
    with atomic_folder(folder):
        raise InterruptedError


def found(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*"))


@pytest.mark.parametrize(
    ("number", "after"), [(1, ["old"]), (2, ["old"]), (3, ["new"])], ids=["before", "amid", "after"]
)
def test_one_of_both_folders_is_there_after_a_kill(
    tmp_path: Path, number: int, after: list[str]
) -> None:
    folder = tmp_path / "bundle"
    folder.mkdir()
    (folder / "old").touch()
    killed = subprocess.run([sys.executable, "-c", _KILLED, str(folder), str(number)])
    assert killed.returncode == -signal.SIGKILL
    copy = tmp_path / "read only"
    shutil.copytree(tmp_path, copy, ignore=lambda *_: ["read only"])
    put_back(copy / "bundle")
    assert found(copy / "bundle") == after
    with pytest.raises(InterruptedError):
        write(folder)
    assert found(folder) == after
    shutil.rmtree(copy)
    assert list(tmp_path.iterdir()) == [folder]


@pytest.fixture
def moved_aside(hostile_bundle: Path, tmp_path: Path) -> Path:
    """A run whose bundle a killed process had moved aside."""
    run = tmp_path / "run"
    shutil.copytree(hostile_bundle, run / ".scda-bundle.0123abcd.old")
    (run / "config.json").write_text('{"config": {}, "data": {}}')
    return run


@pytest.mark.parametrize(
    "look",
    [
        bundle_folder,
        lambda run: bundle_folder(run / "bundle"),
        check_finished,
        lambda run: open_run(run, overwrite=False, resume=True).__enter__(),
    ],
    ids=["run", "bundle", "report", "resume"],
)
def test_whoever_looks_for_the_bundle_next_finds_it(
    moved_aside: Path, look: Callable[[Path], object]
) -> None:
    look(moved_aside)
    assert read_manifest(moved_aside / "bundle").num_known
    assert not list(moved_aside.glob(".scda-*"))


def test_a_folder_that_is_being_replaced_is_left_to_its_writer(moved_aside: Path) -> None:
    with lock(moved_aside / "bundle"), pytest.raises(UsageError, match=r"no bundle\.json found"):
        bundle_folder(moved_aside)
    assert len(list(moved_aside.glob(".scda-bundle.????????.old"))) == 1


def test_a_folder_that_is_there_is_not_replaced_by_an_older_one(tmp_path: Path) -> None:
    bundle = make_bundle(tmp_path / "bundle")
    (tmp_path / ".scda-bundle.0123abcd.old").mkdir()
    assert bundle_folder(bundle) == bundle
    assert read_manifest(bundle).num_known
