"""The stages that run on a Ray cluster: list files, decode them, predict.

Stages exchange Arrow tables. Names are bytes: Arrow text holds only UTF-8.
"""

import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import chdir
from dataclasses import dataclass
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from scda.models.errors import ImageError
from scda.models.predictor import load_predictor
from scda.models.preprocess import Pixels, Preprocessing
from scda.serve.imaging import Prepared
from scda.serve.labelling.decoders import Decoder
from scda.serve.labelling.file_lists import open_file_list
from scda.serve.labelling.formats.parquet import record_batch
from scda.serve.labelling.object_stores import StoredFiles, is_uri
from scda.serve.labelling.outputs import Options
from scda.serve.labelling.pipeline import rows_of
from scda.serve.labelling.sources import FileSelection, LocalFiles

_CHUNK = 1024  # files per table of a listing
_NAMES = pa.schema([("name", pa.binary()), ("file", pa.binary())])


@dataclass(frozen=True)
class SharedFileList:
    """The files named by a list that every machine can read."""

    path: str
    selection: FileSelection

    def __iter__(self) -> Iterator[tuple[str, str]]:
        """Yield each name as both the path of the row and the file."""
        with open_file_list(self.path, (), self.selection) as listed:
            yield from ((name, name) for name, _ in listed)


Source = LocalFiles | StoredFiles | SharedFileList


def list_files(
    batch: Mapping[str, Iterable[int]], sources: Sequence[Source], here: str
) -> Iterator[pa.Table]:
    """Yield the names and files of sources, a chunk at a time.

    Args:
        batch: Indices of sources, as `item`.
        sources: All sources.
        here: Folder that relative paths refer to; unused if there are none.
    """
    for number in batch["item"]:
        source = sources[number]
        with chdir(here if _is_relative(source) else "/"):
            files = iter(source)
            while chunk := list(islice(files, _CHUNK)):
                names = [os.fsencode(name) for name, _ in chunk]
                places = [os.fsencode(_absolute(str(file), here)) for _, file in chunk]
                yield pa.table({"name": names, "file": places}, _NAMES)


def decode(batch: pa.Table, preprocessing: Preprocessing) -> pa.Table:
    """Return names with the input of the model, or with an error.

    Args:
        batch: Table from `list_files`.
        preprocessing: Preprocessing of the bundle.
    """
    prepared = _decoder(preprocessing).prepare(list(map(os.fsdecode, batch["file"].to_pylist())))
    bad = [given if isinstance(given, ImageError) else None for given in prepared]
    good = [None if isinstance(given, ImageError) else given.tobytes() for given in prepared]
    columns = {
        "name": batch["name"],
        "pixels": pa.array(good, pa.binary()),
        "code": pa.array([error and error.code for error in bad], pa.string()),
        "error": pa.array([error and os.fsencode(str(error)) for error in bad], pa.binary()),
    }
    return pa.table(columns)


class Predict:
    """The model of one actor; maps tables from `decode` to rows."""

    def __init__(self, bundle: Any, options: Options, provider: str, threads: int) -> None:
        """Load the model.

        Args:
            bundle: Ray reference to the result of `read_bundle_files`; a path would have to be
                visible to all machines.
            options: Options of the rows.
            provider: As in `Session`.
            threads: As in `Session`.
        """
        import ray

        with tempfile.TemporaryDirectory(prefix="scda-") as folder:
            for name, data in ray.get(bundle).items():
                path = Path(folder, name)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(data)
            self._predictor = load_predictor(Path(folder), provider=provider, threads=threads)
        self._options = options
        self._shape = self._predictor.manifest.preprocessing.shape

    def __call__(self, batch: pa.Table) -> pa.Table:
        """Return the rows of a batch, with the columns of `SCHEMA`."""
        names = [os.fsdecode(name) for name in batch["name"].to_pylist()]
        rows = rows_of(self._predictor, names, self._unpacked(batch), self._options)
        return pa.Table.from_batches([record_batch(rows)])

    def _unpacked(self, batch: pa.Table) -> list[Prepared]:
        return [
            self._pixels(entry["pixels"])
            if entry["code"] is None
            else ImageError(entry["code"], os.fsdecode(entry["error"]))
            for entry in batch.drop_columns("name").to_pylist()
        ]

    def _pixels(self, data: bytes) -> Pixels:
        return np.frombuffer(data, np.uint8).reshape(self._shape)


def read_bundle_files(folder: Path) -> dict[str, bytes]:
    """Return the contents of the files of a bundle by their relative names."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


@cache  # one per decoding process of Ray; it ends with that process
def _decoder(preprocessing: Preprocessing) -> Decoder:
    """Return a decoding process: a file that kills it becomes a row instead of endless retries."""
    return Decoder(preprocessing)


def _is_relative(source: Source) -> bool:
    roots = source.roots if isinstance(source, LocalFiles) else ()
    return not all(root.is_absolute() for root in roots)


def _absolute(file: str, here: str) -> str:
    return file if is_uri(file) else str(Path(here, file))
