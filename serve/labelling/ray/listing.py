"""Files of a labelling on Ray, cut into parts: each part becomes one output file.

The parts are listed by a task on the driver's machine: a task whose machine dies would list all
files again, perhaps others.
"""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import chdir
from dataclasses import dataclass
from hashlib import blake2b
from io import BufferedReader
from itertools import chain, islice, repeat
from pathlib import Path

import pyarrow as pa

from scda.models.decoding.stored import file_system_of, is_uri
from scda.models.errors import UsageError
from scda.serve.labelling.file_lists import ListedFiles
from scda.serve.labelling.object_stores import StoredFiles
from scda.serve.labelling.sources import FileSelection, LocalFiles

# Files of a part, in batches. Small parts come first: they occupy every machine at once, and many
# files still become few outputs.
_SIZES = (32, 256, 2048)
_PARTS_A_SIZE = 512  # of all sources together; the last size has no end
_LARGEST = 131_072  # files of a part, whose rows are in memory together
_READ_AHEAD = 1 << 23  # bytes of a list
# Names are bytes: Arrow text holds only UTF-8.
PART = pa.schema(
    [("part", pa.string()), ("names", pa.list_(pa.binary())), ("files", pa.list_(pa.binary()))]
)


@dataclass(frozen=True)
class SharedFileLists:
    """The files named by lists; iterating gives each name as the path of the row and the file."""

    lists: tuple[str, ...]  # absolute paths or URIs, in order
    selection: FileSelection

    def __iter__(self) -> Iterator[tuple[str, str]]:
        """Yield every selected name of every list, in constant memory."""
        for name in self.lists:
            system, path = file_system_of(name)
            with BufferedReader(system.open_input_file(path), _READ_AHEAD) as file:
                for listed, _ in ListedFiles(file, frozenset(), self.selection):
                    yield listed, listed


Source = LocalFiles | StoredFiles | SharedFileLists


def list_parts(
    batch: Mapping[str, Iterable[int]],
    sources: Sequence[Source],
    here: str,
    batch_size: int,
    written: frozenset[str],
    job_key: bytes,
) -> Iterator[pa.Table]:
    """Yield the parts of sources, each as a table of one row.

    Args:
        batch: Indices of sources, as `item`.
        sources: All sources.
        here: Folder that relative paths refer to; unused if there are none.
        batch_size: Number of files per call of the model. A part ends with a batch.
        written: Names of parts that exist already.
        job_key: Bytes that differ between jobs, at most 64.

    Raises:
        UsageError: If a part that exists already has other files.
    """
    keys = {_key(name) for name in written}
    for number in batch["item"]:
        source = sources[number]
        with chdir(here if _is_relative(source) else "/"):
            files = iter(source)
            for index, size in enumerate(part_sizes(batch_size, len(sources))):
                if not (chunk := list(islice(files, size))):
                    break
                names = [os.fsencode(name) for name, _ in chunk]
                part = _part_name(number, index, names, job_key)
                if part not in written and _key(part) in keys:
                    raise files_have_changed(f"up to {chunk[-1][0]}")
                places = [os.fsencode(_absolute(str(file), here)) for _, file in chunk]
                yield pa.table({"part": [part], "names": [names], "files": [places]}, PART)


def part_sizes(batch_size: int, num_sources: int) -> Iterator[int]:
    """Yield the numbers of files of the parts of one source, without end.

    Args:
        batch_size: Number of files per call of the model.
        num_sources: Number of sources that are labelled together.
    """
    largest = max(1, _LARGEST // batch_size)
    sizes = [batch_size * min(size, largest) for size in _SIZES]
    each = max(1, _PARTS_A_SIZE // num_sources)
    return chain(*(repeat(size, each) for size in sizes[:-1]), repeat(sizes[-1]))


def files_have_changed(which: str) -> UsageError:
    """Return the error of a labelling that is resumed with other files."""
    return UsageError(
        f"cannot resume: the files {which} have changed; pass another --out to start again"
    )


def _part_name(source: int, index: int, names: Sequence[bytes], job_key: bytes) -> str:
    """Return the name of a part, which tells its place, its files and its job."""
    digest = blake2b(b"\0".join(names), digest_size=8, key=job_key).hexdigest()
    return f"part-{source:04d}-{index:07d}-{digest}.parquet"


def _key(part: str) -> str:
    return part.rpartition("-")[0]


def _is_relative(source: Source) -> bool:
    roots = source.roots if isinstance(source, LocalFiles) else ()
    return not all(root.is_absolute() for root in roots)


def _absolute(file: str, here: str) -> str:
    return file if is_uri(file) else str(Path(here, file))
