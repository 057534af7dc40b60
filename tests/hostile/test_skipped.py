"""Nothing under a folder is left out without a row or a count: links, pipes, sockets, devices."""

import json
import os
import socket
import stat
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import pytest

from scda.adapt.data.scan import read_headers, scan_source, scan_target
from scda.models.decoding.content import read_bytes
from scda.models.errors import ImageError, UsageError
from scda.models.folders import Skipped
from scda.models.predictor import Predictor
from scda.serve.labelling.label import label
from scda.serve.labelling.object_stores import StoredFiles
from scda.serve.labelling.outputs import Options
from scda.serve.labelling.sources import ALL_FILES, FileSelection
from tests.bundles import picture
from tests.conftest import Scda

Make = Callable[[Path], None]


def link_to(place: str) -> Make:
    return lambda path: path.symlink_to(place)


def circle(path: Path) -> None:
    path.with_name(f"{path.name}-2").symlink_to(path.name)
    path.symlink_to(f"{path.name}-2")


def bound_socket(path: Path) -> None:
    here = Path.cwd()
    os.chdir(path.parent)  # the path of a socket is short
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(path.name)
    finally:
        os.chdir(here)


def device(path: Path) -> None:
    try:
        os.mknod(path, stat.S_IFCHR | 0o600, os.makedev(1, 5))  # /dev/zero
    except PermissionError:
        path.symlink_to("/dev/zero")


ODD: dict[str, Make] = {
    "broken": link_to("nowhere"),
    "annex": link_to(".git/annex/objects/X9/kQ/SHA256E-s5--0a.jpg/SHA256E-s5--0a.jpg"),
    "dvc": link_to("/nowhere/.dvc/cache/files/md5/0a/1b"),
    "self": link_to("self"),
    "pipe": os.mkfifo,
    "socket": bound_socket,
    "device": device,
    "link-to-device": link_to("/dev/null"),
    "through-a-file": link_to("good.jpg/x"),
    "long": link_to("x" * 300),
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "photos"
    made.mkdir()
    (made / "good.jpg").write_bytes(picture("red"))
    for name, make in ODD.items():
        make(made / name)
    return made


def rows_of(
    predictor: Predictor, inputs: list[Path], out: Path, selection: FileSelection = ALL_FILES
) -> dict[str, str]:
    """Label and return the last part of each path → its label or error code."""
    label(predictor, inputs, [str(out)], selection=selection)
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    found = {row["path"].rpartition("/")[2]: row["label"] or row["error_code"] for row in rows}
    assert len(found) == len(rows)
    return found


def test_whatever_cannot_be_read_has_a_row(
    predictor: Predictor, folder: Path, tmp_path: Path
) -> None:
    expected = dict.fromkeys(ODD, "unreadable") | {"good.jpg": "red"}
    assert rows_of(predictor, [folder], tmp_path / "rows.jsonl") == expected
    inputs = sorted(folder.iterdir())  # as a shell expands photos/*
    assert rows_of(predictor, inputs, tmp_path / "rows.jsonl") == expected
    assert rows_of(predictor, [folder / "*"], tmp_path / "rows.jsonl") == expected


@pytest.mark.parametrize("name", ["circle", "a[1].jpg"])
def test_a_broken_link_may_have_any_name_and_aim(
    predictor: Predictor, tmp_path: Path, name: str
) -> None:
    circle(tmp_path / name)
    expected = {name: "unreadable"}
    assert rows_of(predictor, [tmp_path / name], tmp_path.parent / f"{name}.jsonl") == expected


def test_linked_folders_are_counted(
    scda: Scda, hostile_bundle: Path, folder: Path, tmp_path: Path
) -> None:
    (tmp_path / "album").mkdir()
    (tmp_path / "album" / "b.jpg").write_bytes(picture("blue"))
    for place in (folder / "link", folder / "up", folder / "deep" / "down"):
        place.parent.mkdir(exist_ok=True)
        place.symlink_to(tmp_path / "album")
    summary = tmp_path / "summary.json"
    words = ("label", hostile_bundle, folder, "--out", tmp_path / "x.csv", "--summary", summary)
    done = scda(*words)
    assert done.returncode == 3
    assert "       3  linked folders, skipped (see --follow-symlinks)" in done.stderr
    assert json.loads(summary.read_text())["linked_folders"] == 3
    scda(*words, "--no-recursive")
    assert json.loads(summary.read_text())["linked_folders"] == 0
    scda(*words, "--follow-symlinks")
    found = json.loads(summary.read_text())
    assert (found["linked_folders"], found["labels"]) == (0, {"red": 1, "blue": 1})


def test_training_rejects_or_counts_it(folder: Path, tmp_path: Path) -> None:
    target = scan_target(folder)
    assert {bad.path.name for bad in read_headers(target.paths)[1]} == set(ODD)
    root = tmp_path / "source"
    (root / "b").mkdir(parents=True)
    (root / "a").symlink_to(folder)
    (root / "b" / "more").symlink_to(folder)
    (root / "b" / ".hidden").touch()
    (root / "manifest.csv").touch()
    (root / "lost.jpg").symlink_to("nowhere")
    source = scan_source(root)
    assert len(source.classes["a"]) == len(ODD) + 1
    assert (source.skipped, source.loose) == (Skipped(hidden=1, linked_folders=1), 2)


def test_a_uri_of_a_folder_has_the_same_rows(folder: Path) -> None:
    stored = StoredFiles(f"file://{folder}", ALL_FILES, alone=True)
    assert {name for name, _ in stored} == {"good.jpg", *ODD}


def test_a_pipe_is_not_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(tmp_path / "pipe")
    monkeypatch.setattr("builtins.open", None)  # a call would be a TypeError
    with pytest.raises(ImageError, match="not a regular file"):
        read_bytes(tmp_path / "pipe")


@pytest.mark.parametrize("name", ["rows.csv", "features.npy", "sorted", "photos"])
def test_a_link_in_a_circle_is_told_in_one_line(
    predictor: Predictor, tmp_path: Path, name: str
) -> None:
    (tmp_path / "a.jpg").write_bytes(picture("red"))
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "b.jpg").write_bytes(picture("red"))
    circle(tmp_path / name)
    options = Options(embeddings=tmp_path / "features.npy", sort_into=tmp_path / "sorted")
    inputs = [tmp_path / "photos"] if name == "photos" else [tmp_path / "in"]
    refused = pytest.raises(UsageError, match=f"{name}: is a link")
    with refused if name != "photos" else nullcontext():
        label(predictor, inputs, [str(tmp_path / "rows.csv")], options=options)


LISTS = {
    "CR LF": b"a.jpg\r\nb.jpg\r\n",
    "CR LF without the last": b"a.jpg\r\nb.jpg",
    "a BOM": b"\xef\xbb\xbfa.jpg\nb.jpg\n",
    "both": b"\xef\xbb\xbfa.jpg\r\nb.jpg\r\n",
    "both, NUL-separated": b"\xef\xbb\xbfa.jpg\0b.jpg\0",
    "empty lines": b"\r\n\r\na.jpg\r\n\r\nb.jpg\r\n\r\n",
    "mixed ends": b"a.jpg\nb.jpg\r\n",
}


@pytest.mark.parametrize("data", LISTS.values(), ids=LISTS)
def test_a_list_may_be_written_on_windows(
    predictor: Predictor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data: bytes
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("a.jpg", "b.jpg"):
        Path(name).write_bytes(picture("red"))
    Path("list").write_bytes(data)
    label(predictor, [], ["rows.jsonl"], files_from="list")
    rows = [json.loads(line) for line in Path("rows.jsonl").read_text().splitlines()]
    assert [(row["path"], row["label"]) for row in rows] == [("a.jpg", "red"), ("b.jpg", "red")]


def test_a_carriage_return_of_a_name_is_kept_where_nul_ends_it(
    predictor: Predictor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a\r").write_bytes(picture("red"))
    Path("list").write_bytes(b"a\r\0")
    assert label(predictor, [], ["rows.csv"], files_from="list").labels == {"red": 1}


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be"])
def test_a_list_in_utf_16_is_told(predictor: Predictor, tmp_path: Path, encoding: str) -> None:
    bom = "" if encoding == "utf-16" else "\ufeff"
    (tmp_path / "list").write_bytes(f"{bom}a.jpg\r\n".encode(encoding))
    with pytest.raises(UsageError, match="is UTF-16 text; save it as UTF-8"):
        label(predictor, [], [str(tmp_path / "x.csv")], files_from=str(tmp_path / "list"))
