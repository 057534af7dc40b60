import errno
import os
from pathlib import Path

import pytest

from scda.models.errors import UsageError
from scda.serve.files.class_folders import ClassFolders, folder_name, folder_names


@pytest.mark.parametrize(
    ("label", "name"),
    [
        ("stapler", "stapler"),
        ("tape dispenser", "tape dispenser"),
        ("a/b\\c", "a_b_c"),
        ("..", "_"),
        (".hidden", "hidden"),
        ("ends. ", "ends"),
        ("", "_"),
        ("a\nb\x00c", "a_b_c"),
        ("<script>", "_script_"),
        ("CON", "CON_"),
        ("com1.txt", "com1.txt_"),
        ("שלום 🧷", "שלום 🧷"),
        ("\udcff", "_"),
    ],
)
def test_a_label_becomes_a_folder_name(label: str, name: str, tmp_path: Path) -> None:
    assert folder_name(label) == name
    (tmp_path / name).mkdir()


def test_a_long_label_is_cut_between_characters() -> None:
    assert folder_name("é" * 200) == "é" * 50


def test_labels_never_share_a_folder() -> None:
    labels = ["a/b", "a:b", "A_B", "c", "c", "\u00e9", "E\u0301"]
    expected = ["a_b", "a_b-2", "A_B-3", "c", "c-2", "\u00e9", "E\u0301-2"]
    assert list(folder_names(dict(zip("0123456", labels, strict=True))).values()) == expected


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "in" / "cat.jpg"
    path.parent.mkdir()
    path.write_bytes(b"cat")
    return path


@pytest.mark.parametrize("mode", ["copy", "hardlink", "symlink"])
def test_files_are_placed_and_stay(file: Path, tmp_path: Path, mode: str) -> None:
    root = tmp_path / "out"
    root.mkdir()
    placed = root / ClassFolders(root, mode).place(file, "pet")
    assert placed == root / "pet" / "cat.jpg"
    assert placed.read_bytes() == file.read_bytes() == b"cat"
    assert placed.is_symlink() == (mode == "symlink")
    assert (placed.stat().st_ino == file.stat().st_ino) == (mode != "copy")


def test_names_that_collide_are_numbered(file: Path, tmp_path: Path) -> None:
    placer = ClassFolders(tmp_path, "copy")
    other = tmp_path / "CAT.jpg"
    other.write_bytes(b"other")
    places = [placer.place(path, "pet") for path in (file, file, other)]
    assert [place.name for place in places] == ["cat.jpg", "cat-2.jpg", "CAT-3.jpg"]
    assert placer.place(file, "animal").as_posix() == "animal/cat.jpg"


def test_many_files_of_one_name_take_no_time(file: Path, tmp_path: Path) -> None:
    placer = ClassFolders(tmp_path, "hardlink")
    names = [placer.place(file, "pet").name for _ in range(10_000)]  # 50 million tries, if counted
    assert names[-1] == "cat-10000.jpg"
    assert len(set(names)) == len(names)


def test_a_number_that_is_there_already_is_passed_over(file: Path, tmp_path: Path) -> None:
    second = tmp_path / "cat-2.jpg"
    second.write_bytes(b"second")
    placer = ClassFolders(tmp_path, "copy")
    places = [placer.place(path, "pet").name for path in (second, file, file, second, file)]
    assert places == ["cat-2.jpg", "cat.jpg", "cat-3.jpg", "cat-2-2.jpg", "cat-4.jpg"]


def test_reserved_names_are_no_label_s() -> None:
    assert folder_names({"0": "review", "1": "a"}, reserved=["Review"]) == {
        "0": "review-2",
        "1": "a",
    }


def test_an_unknown_mode_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="'move'; expected copy, hardlink or symlink"):
        ClassFolders(tmp_path, "move")


def test_another_disk_is_told(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object) -> None:
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))

    monkeypatch.setattr(os, "link", refuse)
    with pytest.raises(UsageError, match="one disk only"):
        ClassFolders(tmp_path, "hardlink").place(file, "pet")
