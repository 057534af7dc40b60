"""The output of a labelling on Ray: one folder or URI of Parquet parts.

A part is a function of its files and of the job. Whoever writes it a second time, such as a task
that is repeated on another machine, replaces it with the same rows.
"""

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from socket import gethostname
from typing import BinaryIO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import ArrowException
from pyarrow.fs import FileSelector, FileSystem, FileType

from scda.models.errors import UsageError
from scda.models.files import TEMPORARY, write_atomically
from scda.serve.labelling.journal import Job, check_same_job
from scda.serve.labelling.object_stores import file_system_of

SUCCESS = "_SUCCESS"  # empty object: every part is written; readers of Parquet skip it
JOB = "_job.json"  # the job, for --resume

PartCounts = dict[str, dict[str, int]]  # column → value → number of rows
COUNTED = ["class_id", "error_code"]


class PartsFolder:
    """A folder or URI of parts; the same object works on every machine."""

    def __init__(self, out: str) -> None:
        """Take a path or URI; nothing is written yet."""
        self.out = out

    def check(self, *, resume: bool) -> None:
        """Check that it is new or empty, or holds parts of a labelling that is resumed.

        Raises:
            UsageError: If it is not.
        """
        names = self._names()
        if not names - {JOB}:
            return
        if JOB not in names:
            raise UsageError(f"{self.out}: already exists; expected a new or empty folder")
        if not resume:
            raise UsageError(
                f"{self.out}: already exists; expected a new or empty folder, or --resume to "
                "continue the labelling that wrote it"
            )

    @contextmanager
    def writing(self, job: Job) -> Iterator[frozenset[str]]:
        """Give the names of the parts of an earlier labelling; nothing is left without a part.

        Raises:
            UsageError: If the job differs from the earlier one, or cannot be written.
        """
        names = self._names()
        parts = frozenset(name for name in names if name.endswith(".parquet"))
        if parts:
            before = json.loads(self._read(JOB))
            check_same_job(self.out, before, job, "pass another --out to start again")
        else:
            self._start(job)
        try:
            yield parts
        except BaseException:
            if not self._names() - {JOB}:
                self._remove()
            raise

    def check_visible(self) -> None:
        """Check that this machine sees what the driver wrote.

        Raises:
            UsageError: If it does not.
        """
        if JOB not in self._names():
            raise UsageError(
                f"{self.out}: the machine {gethostname()} does not see this folder; expected a "
                "folder that all machines share, or a URI"
            )

    def finish(self, parts: Iterable[str]) -> None:
        """Write `SUCCESS`, after removing what killed workers left.

        Raises:
            UsageError: If a part is missing.
        """
        if missing := set(parts) - self._names():
            raise UsageError(
                f"{self.out}: {len(missing)} parts that were written are missing, such as "
                f"{min(missing)}; rerun with --resume to write them again"
            )
        if self._is_local:
            for left in Path(self._path).glob(f"{TEMPORARY}*"):
                left.unlink(missing_ok=True)
        self.write(SUCCESS, b"")

    def write(self, name: str, data: bytes) -> None:
        """Write a file that is never seen half-written; object stores show only whole ones."""
        if self._is_local:
            write_atomically(Path(self._path, name), data)
            return
        with self._system.open_output_stream(f"{self._path}/{name}") as file:
            file.write(data)

    def counts(self, part: str) -> PartCounts | None:
        """Return the counts of a part, or None if it is not there or not whole."""
        path = f"{self._path}/{part}"
        try:
            if self._system.get_file_info(path).type != FileType.File:
                return None
            with self._system.open_input_file(path) as file:
                return count_rows(file)
        except (OSError, ArrowException):
            return None

    @property
    def _is_local(self) -> bool:
        return bool(self._system.type_name == "local")

    @property
    def _system(self) -> FileSystem:
        return file_system_of(self.out)[0]

    @property
    def _path(self) -> str:
        return file_system_of(self.out)[1]

    def _names(self) -> set[str]:
        """Return the names in the folder, without unfinished files."""
        selector = FileSelector(self._path, allow_not_found=True)
        names = {entry.base_name for entry in self._system.get_file_info(selector)}
        return {name for name in names if name and not name.startswith(TEMPORARY)}

    def _start(self, job: Job) -> None:
        try:
            if self._is_local:  # an object store has no folders
                self._system.create_dir(self._path, recursive=True)
            self.write(JOB, json.dumps(job, indent=1).encode() + b"\n")
        except (OSError, ArrowException) as error:
            raise UsageError(f"{self.out}: cannot write: {error}") from None

    def _read(self, name: str) -> bytes:
        with self._system.open_input_file(f"{self._path}/{name}") as file:
            return bytes(file.read())

    def _remove(self) -> None:
        with suppress(OSError, ArrowException):
            self._system.delete_file(f"{self._path}/{JOB}")
            if self._is_local:
                Path(self._path).rmdir()


def count_rows(part: BinaryIO) -> PartCounts:
    """Return the numbers of rows per class id and per error code in a Parquet file."""
    table = pq.read_table(part, columns=COUNTED)
    return {name: _counted(table[name]) for name in COUNTED}


def _counted(values: pa.ChunkedArray) -> dict[str, int]:
    counts = pc.value_counts(values.drop_null()).to_pylist()
    return {entry["values"]: entry["counts"] for entry in counts}
