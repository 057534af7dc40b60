import csv
import dataclasses
import os
from pathlib import Path

import pytest

from scda.models.errors import ImageError, UsageError
from scda.models.predictor import ActiveClass
from scda.serve.labelling.formats.rows import LabellingInfo, Row
from scda.serve.labelling.sorting import check_sort, sort_files
from tests.rows import ABOUT, BAD, PREDICTION

CLASSES = (
    ActiveClass("known-000", "red", "known"),
    ActiveClass("known-001", "a/b", "known"),
    ActiveClass("known-002", "a:b", "known"),
    ActiveClass("known-003", "Review", "known"),
    ActiveClass("known-004", "unknown", "known"),
    ActiveClass("discovered-000", "manifest.csv", "discovered"),
    ActiveClass("unknown", "unknown", "unknown"),
)


@pytest.fixture
def about(tmp_path: Path) -> LabellingInfo:
    (tmp_path / "in" / "sub").mkdir(parents=True)
    return dataclasses.replace(ABOUT, root=tmp_path / "in", classes=CLASSES)


def row(about: LabellingInfo, path: str, class_id: str, *, review: bool = False) -> Row:
    about.file(Row(path, BAD.answer)).write_bytes(path.encode("utf-8", "surrogateescape"))
    (active,) = [one for one in CLASSES if one.class_id == class_id]
    answer = dataclasses.replace(
        PREDICTION, class_id=class_id, label=active.label, kind=active.kind
    )
    return Row(path, answer, review)


def sort(
    folder: Path, about: LabellingInfo, *rows: Row, mode: str = "copy"
) -> list[dict[str, str]]:
    """Sort one row at a time, and return the manifest."""
    with sort_files(folder, mode, about) as write:
        for one in rows:
            write([one])
    text = (folder / "manifest.csv").read_bytes().decode("utf-8", "surrogateescape")
    return list(csv.DictReader(text.splitlines()))


def tree(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


@pytest.mark.parametrize("mode", ["copy", "hardlink", "symlink"])
def test_every_file_is_in_the_folder_of_its_class(
    tmp_path: Path, about: LabellingInfo, mode: str
) -> None:
    rows = [row(about, "x.jpg", "known-000"), row(about, "sub/x.jpg", "known-000")]
    manifest = sort(tmp_path / "out", about, *rows, mode=mode)
    assert tree(tmp_path / "out") == ["manifest.csv", "red/x-2.jpg", "red/x.jpg"]
    assert (tmp_path / "out/red/x-2.jpg").read_bytes() == b"sub/x.jpg"
    assert tree(tmp_path / "in") == ["sub/x.jpg", "x.jpg"]  # nothing is moved
    assert manifest == [
        {
            "path": path,
            "class_id": "known-000",
            "label": "red",
            "placed_at": placed_at,
            "error_code": "",
        }
        for path, placed_at in (("x.jpg", "red/x.jpg"), ("sub/x.jpg", "red/x-2.jpg"))
    ]


def test_a_failed_file_is_only_in_the_manifest(tmp_path: Path, about: LabellingInfo) -> None:
    (line,) = sort(tmp_path / "out", about, BAD)
    assert (line["path"], line["placed_at"], line["error_code"]) == ("c.jpg", "", "cannot_decode")
    assert tree(tmp_path / "out") == ["manifest.csv"]


def test_no_two_classes_share_a_folder(tmp_path: Path, about: LabellingInfo) -> None:
    rows = [row(about, f"{one.class_id}.jpg", one.class_id) for one in CLASSES]
    rows.append(row(about, "unsure.jpg", "known-000", review=True))
    sort(tmp_path / "out", about, *rows)
    assert tree(tmp_path / "out") == [
        "Review-2/known-003.jpg",
        "a_b-2/known-002.jpg",
        "a_b/known-001.jpg",
        "manifest.csv",
        "manifest.csv-2/discovered-000.jpg",
        "red/known-000.jpg",
        "review/unsure.jpg",
        "unknown-2/known-004.jpg",
        "unknown/unknown.jpg",
    ]


def test_a_name_that_is_no_text_is_sorted(tmp_path: Path, about: LabellingInfo) -> None:
    name = os.fsdecode(b"caf\xe9.jpg")
    (line,) = sort(tmp_path / "out", about, row(about, name, "known-000"))
    assert (line["path"], line["placed_at"]) == (name, f"red/{name}")
    assert (tmp_path / "out" / "red" / name).is_file()


def test_a_long_name_that_collides_is_sorted(tmp_path: Path, about: LabellingInfo) -> None:
    name = "é" * 125 + ".jpg"  # 254 bytes; a file system takes 255
    rows = [row(about, path, "known-000") for path in (name, f"sub/{name}")]
    lines = sort(tmp_path / "out", about, *rows)
    assert [line["error_code"] for line in lines] == ["", ""]
    assert len(tree(tmp_path / "out" / "red")) == 2
    assert all(line["placed_at"].endswith(".jpg") for line in lines)


def test_a_file_that_vanished_is_told_in_the_manifest(tmp_path: Path, about: LabellingInfo) -> None:
    gone = row(about, "x.jpg", "known-000")
    about.file(gone).unlink()
    (line,) = sort(tmp_path / "out", about, gone)
    assert (line["class_id"], line["placed_at"]) == ("known-000", "")
    assert line["error_code"] == "unreadable"


def sort_and_be_stopped(folder: Path, about: LabellingInfo, *rows: Row) -> None:
    with sort_files(folder, "copy", about) as write:
        write(rows)
        assert len(tree(folder)) > len(rows)  # placed at once, and the manifest beside
        raise KeyboardInterrupt


@pytest.mark.parametrize("is_new", [True, False])
def test_an_error_on_the_way_leaves_the_folder_as_it_was(
    tmp_path: Path, about: LabellingInfo, is_new: bool
) -> None:
    folder = tmp_path / "out"
    if not is_new:
        folder.mkdir()
    with pytest.raises(KeyboardInterrupt):
        sort_and_be_stopped(folder, about, row(about, "x.jpg", "known-000"))
    assert folder.exists() != is_new
    assert tree(tmp_path) == ["in/x.jpg"]


def test_a_place_to_sort_into_is_new_or_empty(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    check_sort(tmp_path / "empty", "copy", [])
    check_sort(tmp_path / "new", "hardlink", [])
    (tmp_path / "file").touch()
    for name, message in (
        ("", "is not empty"),
        ("file", "is a file"),
        ("no/new", f"no folder {tmp_path}/no"),
    ):
        with pytest.raises(UsageError, match=message):
            check_sort(tmp_path / name, "copy", [])


def test_a_place_to_sort_into_is_outside_the_inputs(tmp_path: Path) -> None:
    inputs = [tmp_path / "in"]
    (tmp_path / "in" / "sub").mkdir(parents=True)
    check_sort(tmp_path / "in-sorted", "copy", inputs)
    (tmp_path / "link").symlink_to(tmp_path / "in" / "sub")
    for name in ("in", "in/new", "in/sub", "link", "link/new"):
        with pytest.raises(UsageError, match=f"{name}: inside {tmp_path}/in; expected a folder"):
            check_sort(tmp_path / name, "copy", inputs)


def test_an_unknown_mode_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="'move'; expected copy, hardlink or symlink"):
        check_sort(tmp_path / "new", "move", [])


def test_links_to_another_disk_are_refused_at_once(tmp_path: Path) -> None:
    other = Path("/dev/shm")
    if not other.is_dir() or other.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("one disk only")
    with pytest.raises(UsageError, match=r"not on the disk of /dev/shm; .*use --mode copy"):
        check_sort(tmp_path / "new", "hardlink", [other])
    check_sort(tmp_path / "new", "symlink", [other])


def test_a_disk_within_the_input_is_told_when_it_is_met(
    tmp_path: Path, about: LabellingInfo, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*args: object) -> None:
        raise OSError(18, "Invalid cross-device link")

    one = row(about, "x.jpg", "known-000")
    monkeypatch.setattr(os, "link", refuse)
    with pytest.raises(UsageError, match="one disk only; use --mode copy"):
        sort(tmp_path / "out", about, one, mode="hardlink")
    assert not (tmp_path / "out").exists()


def test_an_error_code_is_kept(tmp_path: Path, about: LabellingInfo) -> None:
    lines = sort(tmp_path / "out", about, Row("e.jpg", ImageError("empty", "no bytes")))
    assert [line["error_code"] for line in lines] == ["empty"]
