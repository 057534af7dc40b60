import io
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from scda.models.errors import UsageError
from scda.models.predictor import Predictor
from scda.serve.labelling.file_lists import open_file_list, open_files
from scda.serve.labelling.label import label
from scda.serve.labelling.sources import FileSelection, find_local_files
from tests.bundles import picture


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("a.jpg", "b.png", "thumbs/a.jpg", "deep/er/c.JPG", ".hidden.jpg"):
        path = tmp_path / "in" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(picture("red"))
    return tmp_path / "in"


def names(folder: Path, **selection: Any) -> list[str]:
    return [name for name, _ in find_local_files([folder], [], FileSelection(**selection))]


def test_patterns_choose_by_name_or_by_path(folder: Path) -> None:
    assert names(folder) == ["a.jpg", "b.png", "deep/er/c.JPG", "thumbs/a.jpg"]
    assert names(folder, include=("*.jpg",)) == ["a.jpg", "thumbs/a.jpg"]
    assert names(folder, include=("*.[jJ][pP][gG]",), exclude=("thumbs/*",)) == [
        "a.jpg",
        "deep/er/c.JPG",
    ]
    assert names(folder, include=("deep/*", "b.*")) == ["b.png", "deep/er/c.JPG"]
    assert names(folder, exclude=("*",)) == []


def test_a_pattern_in_place_of_a_path_is_expanded(folder: Path, tmp_path: Path) -> None:
    found = find_local_files([folder / "*.*", folder / "deep" / "**" / "*.JPG"], [])
    assert [name for name, _ in found] == [
        f"{folder}/a.jpg",
        f"{folder}/b.png",
        f"{folder}/deep/er/c.JPG",
    ]
    (tmp_path / "odd[1]").mkdir()
    assert find_local_files([tmp_path / "odd[1]"], []).roots == (tmp_path / "odd[1]",)
    with pytest.raises(UsageError, match="matches no file and no folder"):
        find_local_files([folder / "*.gif"], [])
    with pytest.raises(UsageError, match="labelled twice"):
        find_local_files([folder / "a.*", folder / "*.jpg"], [])


def test_a_pattern_goes_where_a_folder_does(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "far").mkdir()
    (tmp_path / "far" / "x.jpg").write_bytes(picture("red"))
    for name, place in {
        "link": tmp_path / "far",
        "loop": folder,
        "c.jpg": folder / "a.jpg",
        "nowhere.jpg": folder / "none",
    }.items():
        (folder / name).symlink_to(place)
    os.mkfifo(folder / "pipe.jpg")
    whole = [path for _, path in find_local_files([folder], [])]
    for patterns in (["**/*.*"], ["*.*", "*/*.*", "deep/*/*"], ["*"]):
        found = find_local_files([folder / pattern for pattern in patterns], [])
        assert sorted(path for _, path in found) == sorted(whole)
    followed = find_local_files([folder / "l*k/*"], [], FileSelection(follow_links=True))
    assert [path for _, path in followed] == [folder / "link" / "x.jpg"]
    named = find_local_files([folder / "link" / "*"], [])  # asked for by name
    assert [path for _, path in named] == [folder / "link" / "x.jpg"]


def test_a_file_that_a_pattern_fits_may_vanish(folder: Path) -> None:
    found = find_local_files([folder / "*.*"], [])
    (folder / "b.png").unlink()
    assert [path.name for _, path in found] == ["a.jpg", "b.png"]  # a row with `unreadable`


def test_many_single_files_are_checked_in_a_moment(tmp_path: Path) -> None:
    paths = [tmp_path / f"{number}" for number in range(20_000)]
    for path in paths:
        path.touch()
    assert len(find_local_files(paths, []).roots) == 20_000


def listed(source: Path, **selection: Any) -> list[str]:
    with open_file_list(str(source), [], FileSelection(**selection)) as files:
        assert [str(path) for _, path in files] == [name for name, _ in files]  # twice the same
        return [name for name, _ in files]


def test_a_list_is_read_by_lines_or_by_nul(tmp_path: Path) -> None:
    source = tmp_path / "list"
    source.write_bytes(b"b.jpg\n\nsub/a b.jpg\nlast")
    assert listed(source) == ["b.jpg", "sub/a b.jpg", "last"]
    assert listed(source, include=("*.jpg",)) == ["b.jpg", "sub/a b.jpg"]
    odd = os.fsdecode(b"9\xff\n.jpg")
    source.write_bytes(os.fsencode(odd) + b"\0" + b"x" * 100_000 + b"\0")
    assert listed(source) == [odd, "x" * 100_000]


def test_a_list_may_come_from_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(b"a\nb\n")))
    with open_files([], "-", [], FileSelection()) as files:
        assert [name for name, _ in files] == ["a", "b"]
        assert [name for name, _ in files] == ["a", "b"]


def test_a_list_may_come_from_a_pipe(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with ThreadPoolExecutor() as pool:
        pool.submit(pipe.write_bytes, b"a\0b\nb\0")
        assert listed(pipe) == ["a", "b\nb"]


def test_every_name_of_a_list_has_a_row(
    predictor: Predictor, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    source, out = tmp_path / "list", tmp_path / "rows.csv"
    source.write_text(f"a.jpg\nnone.jpg\n.hidden.jpg\ndeep\n{folder}/b.png\n")
    summary = label(predictor, [], [str(out)], files_from=str(source))
    rows = [line.split(",") for line in out.read_text().splitlines()[1:]]
    assert [(row[0], row[1], row[2]) for row in rows] == [
        ("a.jpg", "ok", ""),
        ("none.jpg", "error", "unreadable"),
        (".hidden.jpg", "ok", ""),
        ("deep", "error", "unreadable"),
        (f"{folder}/b.png", "ok", ""),
    ]
    assert (summary.num_files, summary.num_failed) == (5, 2)


def test_a_list_never_loses_a_file_to_an_output(
    predictor: Predictor, folder: Path, tmp_path: Path
) -> None:
    source = tmp_path / "list"
    source.write_text(f"{folder}/a.jpg\n{folder}/b.csv\n")
    with pytest.raises(UsageError, match="an output would replace a file"):
        label(predictor, [], [f"{folder}/b.csv"], files_from=str(source))


@pytest.mark.parametrize(("inputs", "files_from"), [([], None), ([Path("x")], "list")])
def test_inputs_or_a_list_are_wanted(inputs: list[Path], files_from: str | None) -> None:
    with (
        pytest.raises(UsageError, match="expected either IMAGES or --files-from"),
        open_files(inputs, files_from, [], FileSelection()),
    ):
        pass


def test_a_list_that_is_not_there_is_told(tmp_path: Path) -> None:
    with (
        pytest.raises(UsageError, match="cannot read the list: No such file"),
        open_file_list(str(tmp_path / "none"), []),
    ):
        pass


def test_a_list_may_name_what_is_no_file(predictor: Predictor, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    source, out = tmp_path / "list", tmp_path / "rows.csv"
    # The NUL byte comes too late to be what ends the names.
    names = [f"{tmp_path}/pipe", "/dev/zero", "n" * 5000, "x" * (1 << 16), "a\0b"]
    source.write_text("\n".join(names))
    for workers in (0, 1):
        summary = label(predictor, [], [str(out)], files_from=str(source), workers=workers)
        assert summary.errors == {"unreadable": 5}
