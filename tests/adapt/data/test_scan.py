import os
from collections.abc import Callable
from pathlib import Path

import pytest

from scda.adapt.data.scan import read_headers, scan_source, scan_target
from scda.models.errors import DataError, UsageError
from scda.models.folders import Skipped
from tests.bundles import picture

Scan = Callable[[Path], object]


def write(root: Path, *names: str) -> None:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(b"x")


def test_source_classes_are_folders_sorted_by_name(tmp_path: Path) -> None:
    write(tmp_path, "b/2.jpg", "b/1.jpg", "a/deep/3.png", "loose.jpg")
    (tmp_path / "Empty").mkdir()
    found = scan_source(tmp_path)
    assert list(found.classes) == ["Empty", "a", "b"]
    assert found.classes["Empty"] == ()
    assert found.classes["a"] == (tmp_path / "a/deep/3.png",)
    assert found.classes["b"] == (tmp_path / "b/1.jpg", tmp_path / "b/2.jpg")
    assert found.root == tmp_path


def test_a_class_may_have_any_name(tmp_path: Path) -> None:
    names = ["discovered-000", "known-000", "ключ", "with space", "a,b"]
    write(tmp_path, *(f"{name}/1.jpg" for name in names))
    assert list(scan_source(tmp_path).classes) == sorted(names)


def test_hidden_files_and_folders_are_skipped_and_counted(tmp_path: Path) -> None:
    write(tmp_path, "a/1.jpg", "a/._1.jpg", "a/.DS_Store", ".git/x", "b/.thumbs/2.jpg")
    source, target = scan_source(tmp_path), scan_target(tmp_path)
    assert list(source.classes) == ["a", "b"]
    assert source.classes["b"] == ()
    assert target.paths == (tmp_path / "a/1.jpg",)
    assert source.skipped == target.skipped == Skipped(hidden=4)


def test_target_files_come_depth_first_whatever_their_folders(tmp_path: Path) -> None:
    write(tmp_path, "z.jpg", "b/y.txt", "a/c/x.png", "a/w")
    names = [path.relative_to(tmp_path).as_posix() for path in scan_target(tmp_path).paths]
    assert names == ["a/c/x.png", "a/w", "b/y.txt", "z.jpg"]


def test_sub_folders_may_be_left_out(tmp_path: Path) -> None:
    write(tmp_path, "a/1.jpg", "a/deep/2.jpg", "3.jpg")
    assert scan_source(tmp_path, recursive=False).classes["a"] == (tmp_path / "a/1.jpg",)
    assert scan_target(tmp_path, recursive=False).paths == (tmp_path / "3.jpg",)


@pytest.mark.parametrize(("scan", "role"), [(scan_source, "source"), (scan_target, "target")])
def test_a_root_that_is_no_folder_is_named(scan: Scan, role: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=f"nowhere: the {role} folder does not exist"):
        scan(tmp_path / "nowhere")
    write(tmp_path, "file")
    with pytest.raises(UsageError, match=f"file: the {role} folder is a file"):
        scan(tmp_path / "file")


@pytest.mark.parametrize("scan", [scan_source, scan_target])
def test_a_root_that_may_not_be_read_is_named(
    scan: Scan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:

    def refuse(path: Path) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(UsageError, match="cannot read the folder: Permission denied"):
        scan(tmp_path)


def test_a_source_without_class_folder_is_refused(tmp_path: Path) -> None:
    write(tmp_path, "1.jpg", ".hidden/2.jpg")
    with pytest.raises(DataError, match="no class folder found; expected one folder per class"):
        scan_source(tmp_path)


def test_a_target_without_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="no file found; expected a folder of images"):
        scan_target(tmp_path)


def test_headers_alone_tell_files_that_are_no_image(tmp_path: Path) -> None:
    (tmp_path / "good.txt").write_bytes(picture("red"))
    (tmp_path / "empty.jpg").write_bytes(b"")
    (tmp_path / "text.jpg").write_bytes(b"hello")
    paths = (*sorted(tmp_path.iterdir()), tmp_path / "gone.jpg")
    rejected = {bad.path.name: bad.code for bad in read_headers(paths)[1]}
    assert rejected == {
        "empty.jpg": "empty",
        "text.jpg": "not_an_image",
        "gone.jpg": "unreadable",
    }
    assert all(bad.message and "\n" not in bad.message for bad in read_headers(paths)[1])
