"""What may not be read or written is told in one line, tried as a user whom permissions bind."""

import csv
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from scda.adapt.runs.folder import check_run, open_run
from scda.models.bundle import bundle_folder
from scda.models.errors import ScdaError, UsageError
from scda.models.files import atomic_folder, put_back, write_atomically
from scda.models.naming import change_names
from scda.models.predictor import Predictor
from scda.serve.labelling.label import label
from scda.serve.labelling.outputs import Options
from scda.serve.review.promote import promote
from tests.bundles import make_bundle, picture

NOBODY = 65534


@contextmanager
def ordinary_user() -> Iterator[None]:
    """Run the block without the rights of root, whom no permission holds back."""
    if os.geteuid():
        yield
        return
    os.setresuid(NOBODY, NOBODY, 0)
    try:
        yield
    finally:
        os.setresuid(0, 0, 0)


@pytest.fixture
def home() -> Iterator[Path]:
    """A folder that everyone may enter and write; those of pytest are its user's alone."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o777)
    (folder / "photos").mkdir()
    (folder / "photos" / "a.jpg").write_bytes(picture("red"))
    yield folder
    for parent, names, _ in os.walk(folder):  # else only root could remove them
        for name in names:
            Path(parent, name).chmod(0o755)
    shutil.rmtree(folder)


@pytest.fixture
def warm(predictor: Predictor, home: Path) -> Predictor:
    """A predictor that has labelled before, so that every module it needs is loaded."""
    label(predictor, [home / "photos"], [str(home / "warm.csv")])
    (home / "warm.csv").unlink()
    return predictor


def test_what_may_not_be_read_is_a_row(warm: Predictor, home: Path) -> None:
    (home / "photos" / "b.jpg").write_bytes(picture("red"))
    (home / "photos" / "b.jpg").chmod(0o000)
    (home / "photos" / "c").mkdir(0o000)
    with ordinary_user():
        summary = label(warm, [home / "photos"], [str(home / "rows.csv")])
    rows = list(csv.DictReader((home / "rows.csv").read_text().splitlines()))
    assert [(row["path"], row["error_code"]) for row in rows] == [
        ("a.jpg", ""),
        ("b.jpg", "unreadable"),
        ("c", "unreadable"),
    ]
    assert summary.errors == {"unreadable": 2}


def make_locked(home: Path) -> Path:
    """A folder with a bundle in which nothing can be written."""
    locked = home / "locked"
    locked.mkdir()
    bundle = make_bundle(locked / "bundle", targets={"a.jpg": "red"})
    (bundle / "names.json").write_text('{"version": 1, "labels": {"discovered-000": "x"}}')
    (bundle / "names.json").chmod(0o644)
    for folder in (bundle, locked):
        folder.chmod(0o555)
    return locked


WRITERS: dict[str, Callable[[Predictor, Path, Path], object]] = {
    "table": lambda model, photos, at: label(model, [photos], [str(at / "rows.csv")]),
    "sorted": lambda model, photos, at: label(
        model, [photos], [], options=Options(sort_into=at / "sorted")
    ),
    "promoted": lambda model, photos, at: promote(at / "bundle", at / "out", target=photos),
    "names": lambda model, photos, at: change_names(
        at / "bundle", lambda naming, names: naming.drop(names, "discovered-001")
    ),
    "run": lambda model, photos, at: check_run(at / "run", overwrite=False, resume=False),
    "opened run": lambda model, photos, at: open_run(
        at / "run", overwrite=False, resume=False
    ).__enter__(),
    "file": lambda model, photos, at: write_atomically(at / "file", "text"),
    "folder": lambda model, photos, at: atomic_folder(at / "folder").__enter__(),
}


@pytest.mark.parametrize("name", WRITERS)
def test_what_may_not_be_written_is_named(warm: Predictor, home: Path, name: str) -> None:
    locked = make_locked(home)
    before = sorted(locked.rglob("*"))
    with ordinary_user(), pytest.raises((ScdaError, OSError)) as error:
        WRITERS[name](warm, home / "photos", locked)
    told = str(error.value)
    assert str(locked) in told
    assert "\n" not in told
    assert ".scda-" not in told
    assert getattr(error.value, "exit_code", UsageError.exit_code) == UsageError.exit_code
    assert sorted(locked.rglob("*")) == before


def test_a_folder_that_was_moved_aside_stays_where_it_cannot_be_put_back(home: Path) -> None:
    locked = make_locked(home)
    locked.chmod(0o755)
    moved = (locked / "bundle").rename(locked / ".scda-bundle.0123abcd.old")
    locked.chmod(0o555)
    with ordinary_user():
        put_back(locked / "bundle")
        with pytest.raises(UsageError, match=r"no bundle\.json found"):
            bundle_folder(locked)
    assert (moved / "bundle.json").is_file()
    bundle_folder(locked)
