import os
from pathlib import Path

import pytest

from scda.models.errors import UsageError
from scda.models.folders import Skipped, count_skipped, visible_folders, walk

Names = list[str]


def fill(root: Path, *names: str) -> None:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(name.encode())


def names(root: Path, *, recursive: bool = True) -> Names:
    return [path.relative_to(root).as_posix() for path in walk(root, recursive=recursive)]


def test_files_come_depth_first_and_sorted_by_name(tmp_path: Path) -> None:
    fill(tmp_path, "b.jpg", "a/2.jpg", "a/b/3", "a/10.jpg", "c/1.txt", "B.jpg")
    assert names(tmp_path) == ["B.jpg", "a/10.jpg", "a/2.jpg", "a/b/3", "b.jpg", "c/1.txt"]


def test_sub_folders_can_be_left_out(tmp_path: Path) -> None:
    fill(tmp_path, "b.jpg", "a/2.jpg")
    assert names(tmp_path, recursive=False) == ["b.jpg"]


def test_hidden_files_and_folders_are_skipped_and_counted(tmp_path: Path) -> None:
    fill(tmp_path, "a.jpg", "._a.jpg", ".DS_Store", ".git/x/y", "b/.c.jpg", "b/.ipynb/z", "b/d.jpg")
    assert names(tmp_path) == ["a.jpg", "b/d.jpg"]
    assert count_skipped(tmp_path) == Skipped(hidden=5)


def test_a_folder_named_like_a_hidden_one_can_be_the_root(tmp_path: Path) -> None:
    fill(tmp_path, ".cache/a.jpg")
    assert names(tmp_path / ".cache") == ["a.jpg"]


def test_a_folder_sorts_by_its_name_alone(tmp_path: Path) -> None:
    fill(tmp_path, "a/1", "a-b", "a.jpg", "a0")
    assert names(tmp_path) == ["a/1", "a-b", "a.jpg", "a0"]


def test_a_linked_folder_that_goes_away_is_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    fill(tmp_path, "root/a.jpg", "root/c.jpg")
    (tmp_path / "root" / "b").symlink_to(tmp_path / "real")
    found = walk(tmp_path / "root", follow_links=True)
    assert next(found).name == "a.jpg"
    (tmp_path / "real").rmdir()
    assert [path.name for path in found] == ["b", "c.jpg"]


def test_links_to_files_count_and_links_to_folders_do_not(tmp_path: Path) -> None:
    fill(tmp_path, "real/a.jpg")
    (tmp_path / "link.jpg").symlink_to("real/a.jpg")
    (tmp_path / "real" / "up").symlink_to("..")
    assert names(tmp_path) == ["link.jpg", "real/a.jpg"]
    assert count_skipped(tmp_path) == Skipped(linked_folders=1)
    assert count_skipped(tmp_path, recursive=False) == Skipped()
    assert count_skipped(tmp_path, follow_links=True) == Skipped()


def test_linked_folders_are_followed_on_demand_each_once(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "x.jpg").write_bytes(b"")
    (tmp_path / "a" / "back").symlink_to(tmp_path)
    (tmp_path / "b").symlink_to(tmp_path / "a")
    (tmp_path / "c").symlink_to(tmp_path / "c")  # leads in a circle
    found = [path.relative_to(tmp_path).as_posix() for path in walk(tmp_path, follow_links=True)]
    assert found == ["a/x.jpg", "c"]
    (tmp_path / "a").rename(tmp_path.parent / f"{tmp_path.name}-elsewhere")
    (tmp_path / "b").unlink()
    (tmp_path / "b").symlink_to(tmp_path.parent / f"{tmp_path.name}-elsewhere")
    assert list(walk(tmp_path)) == [tmp_path / "c"]
    assert list(walk(tmp_path, follow_links=True)) == [tmp_path / "b" / "x.jpg", tmp_path / "c"]


def test_whatever_is_no_folder_counts_as_a_file(tmp_path: Path) -> None:
    fill(tmp_path, "a.jpg")
    (tmp_path / "circle").symlink_to("circle")
    (tmp_path / "nowhere").symlink_to("missing")
    os.mkfifo(tmp_path / "pipe")
    assert names(tmp_path) == ["a.jpg", "circle", "nowhere", "pipe"]


def test_an_empty_folder_has_no_files(tmp_path: Path) -> None:
    assert names(tmp_path) == []


@pytest.mark.parametrize("name", ["missing", "a.jpg", "mis\nsing"])
def test_a_root_that_is_no_folder_is_a_usage_error(tmp_path: Path, name: str) -> None:
    fill(tmp_path, "a.jpg")
    with pytest.raises(UsageError, match=r"^[^\n]*: cannot read the folder: [^\n]+$"):
        names(tmp_path / name)


def test_visible_folders_are_the_sub_folders_by_name_and_links_to_folders(tmp_path: Path) -> None:
    fill(tmp_path, "b/x", "a/x", ".hidden/x", "file")
    (tmp_path / "c").symlink_to("a")
    (tmp_path / "circle").symlink_to("circle")
    assert visible_folders(tmp_path) == ["a", "b", "c"]
    with pytest.raises(UsageError, match="cannot read the folder"):
        visible_folders(tmp_path / "file")
