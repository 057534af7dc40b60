"""Standard streams that are closed, full, unread or of another encoding; no home folder."""

import errno
import io
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from scda.adapt.cli.streams import OutputClosed, _Stream
from scda.models.cache import user_cache
from scda.models.errors import UsageError
from tests.conftest import Scda, TinyData

PROGRAM = r"""
import logging, sys, warnings
import typer
from scda.adapt.cli.errors import run
app = typer.Typer(add_completion=False)
@app.command()
def command() -> None:
    with open("data", "w") as file:  # takes the first free number
        typer.echo("bl\u00fc \u4e2d \udcff")
        typer.echo("note \u4e2d", err=True)
        warnings.warn("chatter")
        logging.getLogger("matplotlib").warning("chatter")
        logging.getLogger("scda.models").warning("ours")
        sys.stdout.write(f"{sys.stdin.read()}end\n")
        file.write("done")
run(app)
"""


def ran(folder: Path, redirected: str, **environment: str) -> subprocess.CompletedProcess[bytes]:
    """Run the program in a shell with redirected streams."""
    (folder / "program.py").write_text(PROGRAM)
    words = f"set -o pipefail; '{sys.executable}' program.py {redirected}"
    variables = {**os.environ, "PYTHONIOENCODING": "utf-8", **environment}
    return subprocess.run(
        ["bash", "-c", words],
        cwd=folder,
        env=variables,
        capture_output=True,
        timeout=60,
        stdin=subprocess.DEVNULL,
    )


@pytest.mark.parametrize(
    ("redirected", "code"),
    [
        (">&-", 0),
        ("2>&-", 0),
        ("<&-", 0),
        (">&- 2>&-", 0),
        ("<&- >&- 2>&-", 0),
        ("| true", 141),
        ("2>&1 >/dev/null | true", 0),
        ("2>/dev/full", 0),
    ],
)
def test_a_command_does_its_work_whatever_its_streams(
    tmp_path: Path, redirected: str, code: int
) -> None:
    done = ran(tmp_path, redirected)
    assert done.returncode == code, done.stderr
    assert (tmp_path / "data").read_text() == ("done" if code == 0 else "")
    assert b"Traceback" not in done.stderr + done.stdout


def test_a_full_disk_behind_standard_output_is_one_line(tmp_path: Path) -> None:
    done = ran(tmp_path, ">/dev/full")
    said = "note 中\nscda-adapt: standard output: No space left on device\n"
    assert (done.returncode, done.stderr.decode()) == (2, said.removeprefix("note 中\n"))


@pytest.mark.parametrize(
    ("encoding", "shown"),
    [
        ("utf-8", "blü 中 \\udcff".encode()),
        ("latin-1", b"bl\xfc \\u4e2d \\udcff"),
        ("cp1252", b"bl\xfc \\u4e2d \\udcff"),
        ("cp437", b"bl\x81 \\u4e2d \\udcff"),
        ("utf-8:strict", "blü 中 \\udcff".encode()),
    ],
)
def test_what_an_encoding_cannot_hold_is_escaped_and_libraries_are_silent(
    tmp_path: Path, encoding: str, shown: bytes
) -> None:
    done = ran(tmp_path, "", PYTHONIOENCODING=encoding)
    assert (done.returncode, done.stdout) == (0, shown + b"\nend\n")
    assert done.stderr.endswith(b"\nours\n")
    assert b"chatter" not in done.stderr


def test_a_stream_that_another_program_made_non_blocking_is_waited_for() -> None:
    reads, writes = os.pipe()
    os.set_blocking(writes, False)
    data, got = b"x" * 1_000_000, bytearray()

    def read() -> None:
        while chunk := os.read(reads, 1 << 16):
            got.extend(chunk)

    thread = threading.Thread(target=read)
    with _Stream(writes, "wb") as stream:
        done = stream.write(data)  # as much as the pipe holds
        thread.start()
        while done < len(data):
            done += stream.write(data[done:])
    thread.join()
    os.close(reads)
    assert bytes(got) == data


def test_a_reader_that_went_away_is_no_error_of_the_disk() -> None:
    reads, writes = os.pipe()
    os.close(reads)
    with _Stream(writes, "wb") as stream, pytest.raises(OutputClosed):
        stream.write(b"x")


def no_home(variables: pytest.MonkeyPatch) -> None:
    variables.setenv("HOME", "/dev/null")
    variables.delenv("XDG_CACHE_HOME", raising=False)


def no_cache(variables: pytest.MonkeyPatch) -> None:
    variables.setenv("XDG_CACHE_HOME", "/proc/none")


def a_file_for_a_cache(variables: pytest.MonkeyPatch) -> None:
    variables.setenv("XDG_CACHE_HOME", __file__)


HOMES = [no_home, no_cache, a_file_for_a_cache]


@pytest.mark.parametrize("home", HOMES)
def test_a_cache_that_cannot_be_written_is_one_line_that_names_the_option(
    scda: Scda,
    tiny: TinyData,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    home: Callable[[pytest.MonkeyPatch], None],
) -> None:
    home(monkeypatch)
    words = ("--source", tiny.source, "--target", tiny.target, "--out", tmp_path / "run")
    done = scda("train", *words, "--backbone", "conv4", "--weights", tiny.weights, "--quiet")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert "choose another folder with --cache" in done.stderr
    assert not (tmp_path / "run").exists()


def test_a_relative_cache_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platformdirs.user_cache_path", lambda *names, **options: Path("cache"))
    with pytest.raises(UsageError, match=r"no home folder for the cache; pass --cache DIR, or set"):
        user_cache()


class Broken(io.RawIOBase):
    """Standard input from a disk that fails."""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: object) -> int:
        raise OSError(errno.EIO, os.strerror(errno.EIO))


@pytest.mark.parametrize("name", ["folder", "gone", "file/below", "-"])
def test_a_list_that_cannot_be_read_is_named(
    scda: Scda, hostile_bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=Broken()))
    done = scda("label", hostile_bundle, "--out", "x.csv", "--files-from", name)
    assert done.returncode == 2
    assert f"{name}: cannot read the list: " in done.stderr
