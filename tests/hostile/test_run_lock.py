"""One command at a time writes a run, a bundle, a promotion, a sorted folder or a demo."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from scda.adapt.cli.report import report
from scda.adapt.demo.demo import run_demo
from scda.adapt.pipeline.run import train
from scda.adapt.runs.folder import only_run_writer, open_run
from scda.adapt.runtime.progress import Reporter
from scda.models.bundle import checksums
from scda.models.errors import UsageError
from scda.models.files import atomic_folder, lock, lock_path, remove_left_behind
from tests.conftest import TinyData

HELD = "another process is writing it; wait for it, or write elsewhere"
_HOLD = """
import sys, time
from pathlib import Path
from scda.models.files import lock
with lock(Path(sys.argv[1]), file=Path(sys.argv[2])) as is_ours:
    print(is_ours, flush=True)
    time.sleep(60)
"""


@pytest.mark.parametrize("again", [{"resume": True}, {"overwrite": True}, {}])
def test_a_second_training_is_refused_and_touches_nothing(
    tiny: TinyData, tiny_run: Path, tmp_path: Path, again: dict[str, bool]
) -> None:
    run = tmp_path / "run"
    if again:
        shutil.copytree(tiny_run, run)
    run.mkdir(exist_ok=True)
    with only_run_writer(run):
        before = checksums(run)
        with (
            pytest.raises(UsageError, match=f"{run}: {HELD}"),
            Reporter(quiet=True) as reporter,
        ):
            train(tiny.job(run, **again), reporter)
        assert checksums(run) == before


def test_a_run_has_one_lock_under_all_of_its_names(tiny_run: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tiny_run)
    with (
        only_run_writer(tiny_run),
        pytest.raises(UsageError, match=HELD),
        open_run(tmp_path / "link", overwrite=False, resume=True),
    ):
        pass


def test_a_report_is_not_written_into_a_run_at_work(tiny_run: Path) -> None:
    with only_run_writer(tiny_run), pytest.raises(UsageError, match=HELD):
        report(tiny_run)


def test_a_demo_is_not_replaced_while_it_is_made(tmp_path: Path) -> None:
    with (
        lock(tmp_path, file=tmp_path / ".demo.lock"),
        pytest.raises(UsageError, match=HELD),
        Reporter(quiet=True) as reporter,
    ):
        run_demo(tmp_path, seed=0, overwrite=True, reporter=reporter)


def test_one_process_at_a_time_writes_a_folder(tmp_path: Path) -> None:
    folder = tmp_path / "bundle"
    with atomic_folder(folder) as draft:
        (draft / "mine").touch()
        with pytest.raises(UsageError, match=f"{folder}: {HELD}"), atomic_folder(folder):
            pass
    assert [path.name for path in folder.iterdir()] == ["mine"]
    assert list(tmp_path.iterdir()) == [folder]


def test_the_lock_of_a_killed_process_is_taken_over(tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    words = [sys.executable, "-c", _HOLD, str(run), str(run / ".run.lock")]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout
        assert holder.stdout.readline() == "True\n"
        with pytest.raises(UsageError, match=HELD), only_run_writer(run):
            pass
        holder.kill()
    assert (run / ".run.lock").exists()  # left behind
    with open_run(run, overwrite=False, resume=False):
        pass
    assert list(run.iterdir()) == []


def test_a_refused_new_run_leaves_no_folder(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), open_run(tmp_path / "run", overwrite=False, resume=False):
        raise RuntimeError
    assert list(tmp_path.iterdir()) == []


def test_drafts_of_killed_writers_of_a_folder_are_removed(tmp_path: Path) -> None:
    left = tmp_path / ".scda-new.0123abcd"
    left.mkdir()
    (left / "image.jpg").touch()
    kept = tmp_path / ".new.original"  # of a person
    kept.mkdir()
    lock_path(tmp_path / "new").touch()
    with atomic_folder(tmp_path / "new"):
        assert not left.exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == [".new.original", "new"]
    left.mkdir()
    remove_left_behind(tmp_path / "new")
    assert not left.exists()
