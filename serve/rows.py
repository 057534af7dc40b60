"""One row per labelled file, and the file formats that rows are written in.

A new format is one function and one entry of `FORMATS`.
"""

import csv
import io
import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from scda.models.errors import ImageError, UsageError
from scda.models.predictor import FIELDS, Prediction

STDOUT = "-"
COLUMNS = ("path", "status", "error_code", "error", *FIELDS)
HEADS = (b"path,status,", b'{"path": ')  # how a file that this module wrote begins


@dataclass(frozen=True)
class Row:
    """What is said of one file: a prediction, or why there is none."""

    path: str  # with "/" between folders
    answer: Prediction | ImageError

    def to_json(self) -> dict[str, Any]:
        """Return every column as a plain JSON value, `None` where it is empty."""
        if isinstance(self.answer, ImageError):
            said = {"status": "error", "error_code": self.answer.code, "error": str(self.answer)}
        else:
            said = {"status": "ok", **self.answer.to_json()}
        return {**dict.fromkeys(COLUMNS), "path": self.path, **said}


Write = Callable[[Sequence[Row]], None]


@contextmanager
def write_csv(file: BinaryIO) -> Iterator[Write]:
    """Give a function that writes rows as CSV; lists become JSON text, booleans true or false."""

    def write(lines: Sequence[Sequence[Any]]) -> None:
        text = io.StringIO(newline="")
        # Lines end in CR LF (RFC 4180): with a bare LF, Python leaves a CR in a name unquoted.
        csv.writer(text).writerows(lines)
        file.write(text.getvalue().encode("utf-8", "surrogateescape"))

    write([COLUMNS])
    yield lambda rows: write([[_cell(value) for value in row.to_json().values()] for row in rows])


@contextmanager
def write_jsonl(file: BinaryIO) -> Iterator[Write]:
    r"""Give a function that writes rows as JSON lines in ASCII (undecodable bytes as \udcXX)."""

    def write(rows: Sequence[Row]) -> None:
        file.writelines(json.dumps(row.to_json()).encode() + b"\n" for row in rows)

    yield write


FORMATS: dict[str, Callable[[BinaryIO], AbstractContextManager[Write]]] = {
    ".csv": write_csv,
    ".jsonl": write_jsonl,
}


@contextmanager
def write_rows(outs: Sequence[str]) -> Iterator[Write]:
    """Give a function that writes rows to every output; files appear at the end, whole.

    Args:
        outs: File names with an ending of `FORMATS`, or `-` for CSV on standard output.

    Raises:
        UsageError: If an output cannot be written or has another ending.
    """
    check_outs(outs)
    with ExitStack() as stack:
        writers = [stack.enter_context(_output(out)) for out in outs]

        def write(rows: Sequence[Row]) -> None:
            for writer in writers:
                writer(rows)

        yield write


def check_outs(outs: Sequence[str]) -> None:
    """Refuse outputs that could not be written at the end, before any work is done.

    Raises:
        UsageError: If there is none, an ending is unknown, two are one, or a folder is missing.
    """
    if not outs:
        raise UsageError(f"no output; want a file ending in {_endings()}, or {STDOUT}")
    if len({_resolved(out) for out in outs}) < len(outs):
        raise UsageError("the same output twice")
    for out in outs:
        if out == STDOUT:
            continue
        path = Path(out)
        if path.suffix.lower() not in FORMATS:
            raise UsageError(f"{out}: unknown ending; want {_endings()}, or {STDOUT} for CSV")
        if path.is_dir() or not path.parent.is_dir():
            found = "is a folder" if path.is_dir() else f"no folder {path.parent}"
            raise UsageError(f"{out}: {found}; want a file name in a folder that exists")


def _output(out: str) -> AbstractContextManager[Write]:
    if out == STDOUT:
        return _to_stdout()
    return _to_file(Path(out))


@contextmanager
def _to_stdout() -> Iterator[Write]:
    with write_csv(sys.stdout.buffer) as write:
        yield write
    sys.stdout.buffer.flush()


@contextmanager
def _to_file(path: Path) -> Iterator[Write]:
    with _written_atomically(path) as file, FORMATS[path.suffix.lower()](file) as write:

        def checked(rows: Sequence[Row]) -> None:
            with _errors_named(path):
                write(rows)

        yield checked


@contextmanager
def _written_atomically(path: Path) -> Iterator[BinaryIO]:
    """Give a file that stands at `path` at the end, whole, or not at all.

    Its temporary name is hidden, so that a walk through its folder passes over it.
    """
    with _errors_named(path):
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=".scda-")
    file = os.fdopen(handle, "wb")
    try:
        yield file
        with _errors_named(path):
            file.flush()
            os.fsync(file.fileno())
            file.close()
            os.chmod(name, 0o644)
            os.replace(name, path)
    except BaseException:
        with suppress(OSError):  # closing writes what is left, and the disk may be full
            file.close()
        Path(name).unlink(missing_ok=True)
        raise


@contextmanager
def _errors_named(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:  # a full disk, a folder that went away or may not be written
        raise UsageError(f"{path}: cannot write: {error.strerror or error}") from None


def _cell(value: Any) -> Any:
    if isinstance(value, bool | list):
        return json.dumps(value)
    return value


def _resolved(out: str) -> str:
    return out if out == STDOUT else str(Path(out).resolve())


def _endings() -> str:
    return " or ".join(FORMATS)
