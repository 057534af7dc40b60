"""Rows as lines of text: CSV and JSON lines."""

import csv
import io
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, BinaryIO

from scda.serve.labelling.formats.rows import COLUMNS, LabellingInfo, Row, Write

CSV_HEAD = b"path,status,"
JSONL_HEAD = b'{"path": '


@contextmanager
def write_csv(file: BinaryIO, about: LabellingInfo) -> Iterator[Write]:
    """Give a function that writes rows as CSV; lists become JSON text, booleans true or false."""

    def write(lines: Sequence[Sequence[Any]]) -> None:
        file.write(csv_lines(lines))

    write([COLUMNS])
    yield lambda rows: write([[_cell(value) for value in row.to_json().values()] for row in rows])


def csv_lines(lines: Sequence[Sequence[Any]]) -> bytes:
    """Return lines of a CSV file; undecodable bytes of file names are kept."""
    text = io.StringIO(newline="")
    # Lines end in CR LF (RFC 4180): with a bare LF, Python would not quote a CR in a name.
    csv.writer(text).writerows(lines)
    return text.getvalue().encode("utf-8", "surrogateescape")


@contextmanager
def write_jsonl(file: BinaryIO, about: LabellingInfo) -> Iterator[Write]:
    r"""Give a function that writes rows as JSON lines in ASCII (undecodable bytes as \udcXX)."""

    def write(rows: Sequence[Row]) -> None:
        file.writelines(json.dumps(row.to_json()).encode() + b"\n" for row in rows)

    yield write


def _cell(value: Any) -> Any:
    if isinstance(value, bool | list):
        return json.dumps(value)
    return value
