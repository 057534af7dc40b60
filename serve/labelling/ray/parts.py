"""The output of a labelling on Ray: one folder or URI of Parquet parts.

A part is a function of its files and of the job. Whoever writes it a second time, such as a task
that is repeated on another machine, replaces it with the same rows.

Two drivers with different jobs may start on one folder before it has a part; the job that is
recorded last keeps it. A writer looks for its job after it wrote a part, and a driver for parts
after it recorded its job: at least one of them sees the other, and stops.
"""

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from socket import gethostname
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import ArrowException
from pyarrow.fs import FileSelector, FileSystem, FileType

from scda.models.errors import UsageError
from scda.models.files import TEMPORARY, write_atomically
from scda.serve.labelling.journal import Job, check_same_job, find_difference
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
        self._job: Job = {}  # from `writing` on; other machines get it with this object

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

        `SUCCESS` of an earlier labelling is removed, until `finish` writes it again.

        Raises:
            UsageError: If the job differs from the earlier one, or cannot be written.
        """
        self._job = json.loads(json.dumps(job))
        parts = self._parts()
        if parts:
            check_same_job(self.out, self._recorded(), job, "pass another --out to start again")
        else:
            self._start()
        if SUCCESS in self._names():
            self._delete(SUCCESS)
        try:
            yield parts
        except BaseException:
            with suppress(UsageError):
                if not self._names() - {JOB} and self._recorded() == self._job:
                    self._remove()
            raise

    def check_ours(self) -> None:
        """Check that this machine sees what the driver wrote, and that the job is still its own.

        Raises:
            UsageError: If it does not, or another driver has recorded a different job.
        """
        found = self._recorded()
        if found is None:
            raise UsageError(
                f"{self.out}: the machine {gethostname()} does not see this folder; expected a "
                "folder that all machines share, or a URI"
            )
        if difference := find_difference(found, self._job):
            name, there, ours = difference
            raise UsageError(
                f"{self.out}: another labelling writes to this folder: {name} in {JOB} is "
                f"{there!r}, expected {ours!r}; pass another --out"
            )

    def finish(self, parts: Iterable[str]) -> None:
        """Write `SUCCESS`, after removing what killed workers left.

        Raises:
            UsageError: If a part is missing, or another driver has recorded a different job.
        """
        self.check_ours()
        if missing := set(parts) - self._names():
            raise UsageError(
                f"{self.out}: {len(missing)} parts that were written are missing, such as "
                f"{min(missing)}; rerun with --resume to write them again"
            )
        if self._is_local:
            for left in Path(self._path).glob(f"{TEMPORARY}*"):
                left.unlink(missing_ok=True)
        self._put(SUCCESS, b"")

    def write(self, name: str, data: bytes) -> None:
        """Write a part that is never seen half-written.

        Raises:
            UsageError: If another driver has recorded a different job; the part is not left.
        """
        self.check_ours()
        self._put(name, data)
        try:
            self.check_ours()
        except UsageError:
            self._delete(name)
            raise

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

    def _parts(self) -> frozenset[str]:
        return frozenset(name for name in self._names() if name.endswith(".parquet"))

    def _start(self) -> None:
        """Record the job in a folder without parts."""
        earlier = self._recorded()
        if earlier == self._job:
            return
        try:
            if self._is_local:  # an object store has no folders
                self._system.create_dir(self._path, recursive=True)
            self._put_job(self._job)
            parts = self._parts()
            if parts:  # they are of the job that was there
                self._put_job(earlier) if earlier else self._delete(JOB)
        except (OSError, ArrowException) as error:
            raise UsageError(f"{self.out}: cannot write: {error}") from None
        if parts:
            raise UsageError(
                f"{self.out}: another labelling writes to this folder: found {min(parts)}, "
                "expected no parts; pass another --out"
            )

    def _recorded(self) -> Any:
        """Return the job in the folder: None if there is none, empty if it is damaged."""
        try:
            with self._system.open_input_file(f"{self._path}/{JOB}") as file:
                return json.loads(file.read())
        except FileNotFoundError:
            return None
        except ValueError:  # of JSON and of Arrow
            return {}
        except (OSError, ArrowException) as error:
            raise UsageError(f"{self.out}: cannot read {JOB}: {error}") from None

    def _put_job(self, job: Any) -> None:
        self._put(JOB, json.dumps(job, indent=1).encode() + b"\n")

    def _put(self, name: str, data: bytes) -> None:
        """Write a file as a whole, which object stores always do."""
        if self._is_local:
            write_atomically(Path(self._path, name), data)
            return
        with self._system.open_output_stream(f"{self._path}/{name}") as file:
            file.write(data)

    def _delete(self, name: str) -> None:
        try:
            self._system.delete_file(f"{self._path}/{name}")
        except FileNotFoundError:  # another driver was faster
            return
        except (OSError, ArrowException) as error:
            raise UsageError(f"{self.out}: cannot remove {name}: {error}") from None

    def _remove(self) -> None:
        with suppress(OSError):
            self._delete(JOB)
            if self._is_local:
                Path(self._path).rmdir()


def count_rows(part: BinaryIO) -> PartCounts:
    """Return the numbers of rows per class id and per error code in a Parquet file."""
    table = pq.read_table(part, columns=COUNTED)
    return {name: _counted(table[name]) for name in COUNTED}


def _counted(values: pa.ChunkedArray) -> dict[str, int]:
    counts = pc.value_counts(values.drop_null()).to_pylist()
    return {entry["values"]: entry["counts"] for entry in counts}
