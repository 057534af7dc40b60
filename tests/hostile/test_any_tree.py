"""Whatever lies in a folder, `label` gives each file one row or count, and harms nothing."""

import csv
import io
import json
import os
import signal
import socket
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from scda.adapt.cli.main import main
from tests.bundles import picture

ODD = (
    *("a", "b.jpg", "-", "--out", "a,b", '"', "'", "=1+1", "*", "[a]", "?", "~", "con", "$HOME"),
    *("line\nbreak", "line\r", "\t", " ", "\u2028", "\u202e", "caf\u00e9", "cafe\u0301", "\u200b"),
    *(".hidden", "._a.jpg", "..a", "x" * 200, "s3:", "unknown", "manifest.csv", "rows.csv"),
)
NOT_UTF_8 = (b"\xff", b"caf\xe9.jpg", b"\xed\xa0\x80", b"a\x80\xff\nb")
CONTENTS = {
    "good": picture("red", size=(20, 20)),
    "png": picture("blue", size=(8, 8), kind="PNG"),
    "empty": b"",
    "text": b"no image",
    "cut": picture("red", size=(200, 200))[:500],
    "row": b"path,status,error_code\r\n",
}
LINKS = {
    "to nothing": "nowhere",
    "to itself": None,
    "to the parent": "..",
    "to here": ".",
    "to an absolute nothing": "/nowhere/annex/object",
    "to a device": "/dev/zero",
    "to a file": "../a/b.jpg",
    "to a folder": "../a",
}
KINDS = (*CONTENTS, *LINKS, "folder", "pipe", "socket", "locked file", "locked folder")

LINKED = {"a/b.jpg": "good", "c/d": "to a folder", "c/e": "to a file"}
FLAGS = ("--no-recursive", "--sort-into", "--embeddings", "--resume", "--workers")

names = st.one_of(
    st.sampled_from(ODD),
    st.sampled_from([os.fsdecode(raw) for raw in NOT_UTF_8]),
    st.text(max_size=5, alphabet=st.characters(exclude_characters="/\0", codec="utf-8")),
).filter(lambda name: name not in ("", ".", ".."))
paths = st.lists(names, min_size=1, max_size=3).map("/".join)
trees = st.dictionaries(paths, st.sampled_from(KINDS), min_size=1, max_size=8)
# A link to a folder above may lead to the sorted files.
flags = st.one_of(st.sets(st.sampled_from(FLAGS)), st.just({"--follow-symlinks"}))


def plant(root: Path, tree: dict[str, str]) -> None:
    """Make what fits; a name that is taken already, or lies below a file, is left out."""
    for name, kind in tree.items():
        path = root / name
        with suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            put(path, kind)


def put(path: Path, kind: str) -> None:
    if kind in CONTENTS:
        with path.open("xb") as file:
            file.write(CONTENTS[kind])
    elif kind in LINKS:
        path.symlink_to(LINKS[kind] or path.name)
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "socket":
        with chdir(path.parent), socket.socket(socket.AF_UNIX) as made:
            made.bind(path.name)
    elif kind == "locked file":
        path.touch(0o000, exist_ok=False)
    else:
        path.mkdir(0o000 if kind == "locked folder" else 0o755)


@contextmanager
def chdir(folder: Path) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def expected(root: Path, *, recursive: bool, prefix: str = "") -> tuple[list[str], Counter[str]]:
    """What the documentation promises for a folder: its rows, and its counts of what is skipped."""
    rows: list[str] = []
    counts: Counter[str] = Counter()
    for name in os.listdir(root):
        path = root / name
        is_link = os.path.islink(path)
        if name.startswith("."):
            counts["hidden"] += 1
        elif os.path.isdir(path) and is_link:
            counts["linked_folders"] += recursive
        elif os.path.isdir(path) and not recursive:
            continue
        elif os.path.isdir(path) and os.access(path, os.R_OK | os.X_OK):
            inside, skipped = expected(path, recursive=True, prefix=f"{prefix}{name}/")
            rows += inside
            counts += skipped
        else:
            rows.append(prefix + name)
    return rows, counts


def state(root: Path) -> dict[str, tuple[int, int, bytes]]:
    """Everything below a folder: kind and permissions, time of the last change, content."""
    found = {}
    for folder, folders, files in os.walk(root):
        for name in (*folders, *files):
            path = Path(folder, name)
            status = path.lstat()
            plain = path.is_file() and not path.is_symlink() and os.access(path, os.R_OK)
            data = path.read_bytes() if plain else b""
            found[str(path)] = (status.st_mode, status.st_mtime_ns, data)
    return found


def ran(words: list[str]) -> tuple[int, str]:
    """The exit code and the messages of a command in this process."""
    before, handler, said = sys.argv, signal.getsignal(signal.SIGTERM), io.StringIO()
    sys.argv = ["scda-adapt", *words]
    try:
        with redirect_stderr(said), pytest.raises(SystemExit) as stopped:
            main()
    finally:
        sys.argv = before
        signal.signal(signal.SIGTERM, handler)
    assert isinstance(stopped.value.code, int)
    return stopped.value.code, said.getvalue()


@given(tree=trees, options=flags)
@example(tree=dict(zip(ODD, KINDS * 2, strict=False)), options=set())
@example(tree=LINKED, options={"--sort-into"})
@example(tree=LINKED | {"c/f": "to the parent", "g": "to here"}, options={"--follow-symlinks"})
@example(tree={f"{kind}/{kind}": kind for kind in KINDS}, options={"--sort-into", "--embeddings"})
@example(tree={"a": "to the parent", "b": "good"}, options={"--sort-into"})
@example(tree={"a": "to the parent", "a/b": "good"}, options={"--follow-symlinks"})
@example(tree={os.fsdecode(raw): "good" for raw in NOT_UTF_8}, options={"--sort-into"})
@settings(max_examples=25, suppress_health_check=[HealthCheck.too_slow])
def test_each_file_has_one_row_or_count(
    hostile_bundle: Path, tree: dict[str, str], options: set[str]
) -> None:
    with tempfile.TemporaryDirectory() as made:
        top = Path(made)
        root, out = top / "photos", top / "out"
        root.mkdir()
        out.mkdir()
        plant(root, tree)
        rows, counts = expected(root, recursive="--no-recursive" not in options)
        before, beside = state(root), set(os.listdir(top))  # a file may lie behind a link to it
        extra = {
            "--no-recursive": ["--no-recursive"],
            "--sort-into": ["--sort-into", str(out / "sorted")],
            "--embeddings": ["--embeddings", str(out / "f.npy")],
            "--resume": ["--resume"],
            "--workers": ["--workers", "0"],
            "--follow-symlinks": ["--follow-symlinks"],
        }
        words = ["label", str(hostile_bundle), str(root), "--out", str(out / "rows.csv")]
        words += ["--out", str(out / "rows.parquet"), "--summary", str(out / "sum.json")]
        code, said = ran(words + [word for flag in sorted(options) for word in extra[flag]])
        assert state(root) == before
        assert set(os.listdir(top)) == beside
        follows = "--follow-symlinks" in options
        if not rows and not follows:
            assert code == 4, said
            assert list(out.iterdir()) == []
            return
        assert code in ((0, 3, 4) if follows else (0, 3)), said
        if code == 4:
            return
        written = {path.name for path in out.iterdir()}
        assert written <= {"rows.csv", "rows.parquet", "sum.json", "sorted", "f.npy"}
        text = (out / "rows.csv").read_bytes().decode("utf-8", "surrogateescape")
        table = list(csv.DictReader(io.StringIO(text, newline="")))
        found = Counter(row["path"] for row in table)
        assert set(found.values()) == {1}
        if follows:
            assert set(rows) <= set(found)
            return
        assert sorted(found) == sorted(rows)
        failed = sum(row["status"] == "error" for row in table)
        assert code == (3 if failed else 0)
        summary = json.loads((out / "sum.json").read_text())
        assert (summary["files"], summary["failed"]) == (len(rows), failed)
        assert {name: summary[name] for name in ("hidden", "linked_folders")} == {
            name: counts[name] for name in ("hidden", "linked_folders")
        }
