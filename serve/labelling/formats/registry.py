"""The file formats of a labelling, by the ending of the file name.

A new format is one module with one function, and one entry here.
"""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from scda.serve.labelling.formats import embeddings, fiftyone, labelstudio, lines, parquet
from scda.serve.labelling.formats.rows import LabellingInfo, Write


@dataclass(frozen=True)
class Format:
    """One file format of rows."""

    write: Callable[[BinaryIO, LabellingInfo], AbstractContextManager[Write]]
    head: bytes  # beginning of every file
    beside: Callable[[LabellingInfo], bytes] | None = (
        None  # a second file, which the first one needs
    )
    beside_ending: str = ""
    beside_head: bytes = b""
    mark: bytes = b""  # in the end of every file, where other programs write files of this head


FORMATS = {
    ".csv": Format(lines.write_csv, lines.CSV_HEAD),
    ".jsonl": Format(lines.write_jsonl, lines.JSONL_HEAD),
    ".parquet": Format(parquet.write_parquet, parquet.HEAD, mark=parquet.MARK),
    ".labelstudio.json": Format(
        labelstudio.write_tasks,
        labelstudio.HEAD,
        labelstudio.labelling_config,
        ".labelstudio.xml",
        labelstudio.CONFIG_HEAD,
    ),
    ".fiftyone.json": Format(fiftyone.write_labels, fiftyone.HEAD),
}
EMBEDDINGS = {".npy": Format(embeddings.write_npy, embeddings.HEAD)}
_ALL = (*FORMATS.values(), *EMBEDDINGS.values())
# How files begin, and what the end of each contains.
HEADS = {one.head: one.mark for one in _ALL} | {
    one.beside_head: b"" for one in _ALL if one.beside_head
}


def ending(path: Path, formats: Mapping[str, Format]) -> str | None:
    """Return the ending that decides the format of a file, or None."""
    name = path.name.lower()
    return next((end for end in formats if name.endswith(end) and name != end), None)


def path_beside(path: Path, formats: Mapping[str, Format]) -> Path | None:
    """Return the path of the second file of a format, or None."""
    end = ending(path, formats)
    if end is None or not formats[end].beside:
        return None
    return path.with_name(path.name[: -len(end)] + formats[end].beside_ending)


def endings(formats: Mapping[str, Format]) -> str:
    """Return the endings as text."""
    *others, last = formats
    return f"{', '.join(others)} or {last}" if others else last
