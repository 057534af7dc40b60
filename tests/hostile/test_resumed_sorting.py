"""Sorting killed in the middle goes on with --resume, and a killed promotion leaves nothing."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from scda.models.errors import UsageError
from scda.models.predictor import Predictor, load_predictor
from scda.serve.files.class_folders import ClassFolders
from scda.serve.labelling.label import label
from scda.serve.labelling.outputs import Options
from scda.serve.review.promote import promote
from tests.bundles import RGB, make_bundle, picture

_KILLED = """
import os, signal, sys
from pathlib import Path
from scda.models.predictor import load_predictor
from scda.serve.labelling.label import label
from scda.serve.labelling.outputs import Options

bundle, images, place, mode, *outs = sys.argv[1:]

def die(done, total, failed):
    if done >= 6:
        os.kill(os.getpid(), signal.SIGKILL)

label(load_predictor(Path(bundle), provider="cpu", threads=1), [Path(images)], outs,
      options=Options(sort_into=Path(place), mode=mode), batch_size=2, on_progress=die)
"""


@pytest.fixture(scope="module")
def predictor(tmp_path_factory: pytest.TempPathFactory) -> Predictor:
    bundle = make_bundle(tmp_path_factory.mktemp("made") / "bundle")
    return load_predictor(bundle, provider="cpu", threads=1)


@pytest.fixture
def images(tmp_path: Path) -> Path:
    """Three files of each colour, of the same names, and one that is no image."""
    for number in range(3):
        for colour in RGB:
            path = tmp_path / "images" / str(number) / f"{colour}.jpg"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(picture(colour))
    (tmp_path / "images" / "notes.txt").write_text("no image")
    return tmp_path / "images"


def contents(folder: Path) -> dict[str, tuple[bytes, int, bool]]:
    return {
        path.relative_to(folder).as_posix(): (
            path.read_bytes(),
            path.stat().st_ino if path.stat().st_nlink > 1 else 0,
            path.is_symlink(),
        )
        for path in folder.rglob("*")
        if path.is_file()
    }


def sort(predictor: Predictor, images: Path, place: Path, *outs: Path, **options: Any) -> None:
    resume = options.pop("resume", False)
    label(
        predictor,
        [images],
        list(map(str, outs)),
        options=Options(sort_into=place, **options),
        batch_size=2,
        resume=resume,
    )


def kill(predictor: Predictor, images: Path, place: Path, mode: str, *outs: Path) -> None:
    words = [predictor.folder, images, place, mode, *outs]
    done = subprocess.run([sys.executable, "-c", _KILLED, *map(str, words)])
    assert done.returncode == -signal.SIGKILL
    assert not (place / "manifest.csv").exists()
    assert len(contents(place)) >= 6


@pytest.mark.parametrize(("mode", "outs"), [("copy", 0), ("hardlink", 1), ("symlink", 2)])
def test_a_killed_sorting_goes_on(
    predictor: Predictor, images: Path, tmp_path: Path, mode: str, outs: int
) -> None:
    tables = [tmp_path / "rows.csv", tmp_path / "rows.jsonl"][:outs]
    sort(predictor, images, tmp_path / "whole", mode=mode)
    place = tmp_path / "sorted"
    kill(predictor, images, place, mode, *tables)
    # What was being copied, and what was not yet placed.
    first, second = sorted(place.glob("*/*.jpg"))[:2]
    first.rename(first.with_name(".scda-0123456789abcdef"))
    second.unlink()
    with pytest.raises(UsageError, match="sorted: is not empty"):
        sort(predictor, images, place, *tables, mode=mode)
    other = "symlink" if mode == "copy" else "copy"
    with pytest.raises(UsageError, match=f"cannot resume: mode was '{mode}', is '{other}'"):
        sort(predictor, images, place, *tables, mode=other, resume=True)
    sort(predictor, images, place, *tables, mode=mode, resume=True)
    assert contents(place) == contents(tmp_path / "whole")
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {"images", "sorted", "whole", *(table.name for table in tables)}


@pytest.mark.parametrize(
    ("mode", "name"),
    [("copy", "red/red.jpg"), ("hardlink", "blue/blue-3.jpg"), ("symlink", "manifest.csv")],
)
def test_a_file_of_a_person_is_neither_replaced_nor_removed(
    predictor: Predictor, images: Path, tmp_path: Path, mode: str, name: str
) -> None:
    place = tmp_path / "sorted"
    kill(predictor, images, place, mode)
    mine, beside = place / name, place / "red" / "notes.txt"
    mine.unlink(missing_ok=True)
    mine.parent.mkdir(exist_ok=True)
    for path in (mine, beside):
        path.write_text("years of work")
    for _ in range(2):
        with pytest.raises(UsageError, match=f"{mine}: .*(File exists; it is another|exists and)"):
            sort(predictor, images, place, mode=mode, resume=True)
        assert mine.read_text() == beside.read_text() == "years of work"
    mine.unlink()
    sort(predictor, images, place, mode=mode, resume=True)
    beside.unlink()
    sort(predictor, images, tmp_path / "whole", mode=mode)
    assert contents(place) == contents(tmp_path / "whole")


@pytest.mark.parametrize("mode", ["copy", "hardlink", "symlink"])
@pytest.mark.parametrize("name", ["red/red-2.jpg", "manifest.csv"])
def test_a_file_that_appears_while_sorting_is_neither_replaced_nor_removed(
    predictor: Predictor,
    images: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    mode: str,
    name: str,
) -> None:
    mine = tmp_path / "sorted" / name
    whole = ClassFolders.place

    def place(self: ClassFolders, *what: Any) -> Path:
        mine.parent.mkdir(exist_ok=True)
        mine.write_text("years of work")
        return whole(self, *what)

    monkeypatch.setattr(ClassFolders, "place", place)
    with pytest.raises(UsageError, match=f"{mine}: "):
        sort(predictor, images, tmp_path / "sorted", mode=mode)
    assert list(contents(tmp_path / "sorted")) == [name]
    assert mine.read_text() == "years of work"


def test_nothing_but_what_was_sorted_is_gone_on_with(
    predictor: Predictor, images: Path, tmp_path: Path
) -> None:
    place = tmp_path / "mine"
    place.mkdir()
    (place / "thesis.tex").write_text("years of work")
    with pytest.raises(UsageError, match="mine: is not empty"):
        sort(predictor, images, place, resume=True)
    (tmp_path / ".mine.journal").write_bytes(b'{"cut off')  # a journal without a job
    with pytest.raises(UsageError, match="mine: is not empty"):
        sort(predictor, images, place, resume=True)
    assert [path.name for path in place.iterdir()] == ["thesis.tex"]


def test_sorting_alone_can_be_resumed_after_an_error(
    predictor: Predictor, images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    placed = []
    whole = ClassFolders.place

    def place(self: ClassFolders, *what: Any) -> Path:
        placed.append(what)
        if len(placed) == 5:
            raise KeyboardInterrupt
        return whole(self, *what)

    monkeypatch.setattr(ClassFolders, "place", place)
    with pytest.raises(KeyboardInterrupt):
        sort(predictor, images, tmp_path / "sorted")
    assert not (tmp_path / "sorted").exists()
    sort(predictor, images, tmp_path / "sorted", resume=True)
    assert len(contents(tmp_path / "sorted")) == 16


@pytest.mark.parametrize("half", [".scda-0123456789abcdef", None])
def test_a_file_that_vanished_before_it_was_copied_whole_is_a_row(
    tmp_path: Path, half: str | None
) -> None:
    original, root = tmp_path / "a.jpg", tmp_path / "sorted"
    (root / "red").mkdir(parents=True)
    (root / "red" / (half or "a.jpg")).write_bytes(b"half")
    with pytest.raises(UsageError, match=r"a\.jpg: cannot copy: "):
        ClassFolders(root, "copy", resumed=True).place(original, "red")
    left = [path.name for path in (root / "red").iterdir()]
    assert left == ([] if half else ["a.jpg"])  # nothing says whose it is


def test_a_full_disk_is_not_blamed_on_the_original(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original, root = tmp_path / "a.jpg", tmp_path / "sorted"
    original.write_bytes(picture("red"))
    root.mkdir()

    def full(*names: Any, **unused: Any) -> None:
        raise OSError(28, "No space left on device", str(original))  # as shutil.copy2 does

    monkeypatch.setattr("shutil.copy2", full)
    place = root / "red" / "a.jpg"
    with pytest.raises(UsageError, match=f"^{place}: cannot copy {original}: No space left"):
        ClassFolders(root, "copy").place(original, "red")
    monkeypatch.setattr(os, "link", full)
    with pytest.raises(UsageError, match=f"^{place}: cannot hardlink {original}: No space left"):
        ClassFolders(root, "hardlink").place(original, "red")
    shown = tmp_path / "promoted" / "red" / "a.jpg"
    with pytest.raises(UsageError, match=f"^{shown}: cannot copy {original}: No space left"):
        ClassFolders(root, "copy", shown=tmp_path / "promoted").place(original, "red")
    assert list(root.glob("*/*")) == []


def test_what_a_killed_promotion_left_is_removed_by_the_next(tmp_path: Path) -> None:
    bundle = make_bundle(tmp_path / "bundle", targets={"a.jpg": "red"})
    (bundle / "names.json").write_text('{"version": 1, "labels": {"discovered-000": "x"}}')
    target = tmp_path / "target"
    target.mkdir()
    (target / "a.jpg").write_bytes(picture("red"))
    code = (
        "import os, signal, sys; from pathlib import Path; from scda.serve.review.promote import "
        "promote; die = lambda *_: os.kill(os.getpid(), signal.SIGKILL); "
        "bundle, out, target = map(Path, sys.argv[1:]); "
        "promote(bundle, out, target=target, on_progress=die)"
    )
    out = tmp_path / "out"
    words = [sys.executable, "-c", code, str(bundle), str(out), str(target)]
    assert subprocess.run(words).returncode == -signal.SIGKILL
    assert len(list(tmp_path.glob(".scda-out.????????"))) == 1
    assert not out.exists()
    promote(bundle, out, target=target)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bundle", "out", "target"]
