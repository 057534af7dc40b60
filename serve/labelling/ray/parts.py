"""The output of a labelling on Ray: one folder or URI of Parquet parts.

A part is a function of its files and of the job, and its name tells both. Whoever writes it a
second time, such as a task that is repeated on another machine, replaces it with the same rows.

Two drivers may start on one folder; the one that is recorded last keeps it. A writer looks for its
driver before and after it writes a part, and a driver looks for parts after it is recorded: at
least one of them sees the other. The earlier one stops. Its part stays if it is of the same job,
as it is what the other one would write, and is taken back otherwise.
"""

import json
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from hashlib import blake2b
from secrets import token_hex
from socket import gethostname
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import ArrowException

from scda.models.errors import UsageError
from scda.serve.labelling.journal import Job, check_same_job, find_difference
from scda.serve.labelling.ray.output_folder import OutputFolder

SUCCESS = "_SUCCESS"  # empty object: every part is written; readers of Parquet skip it
JOB = "_job.json"  # the job, for --resume, and the driver that works on it
DRIVER = "driver"  # the last property of the record; rows do not depend on it

PartCounts = dict[str, dict[str, int]]  # column → value → number of rows
COUNTED = ["class_id", "error_code"]


class PartsFolder:
    """A folder or URI of parts; the same object works on every machine."""

    def __init__(self, out: str) -> None:
        """Take a path or URI; nothing is written yet."""
        self.out = out
        self._folder = OutputFolder(out)
        self._record: Job = {}  # from `writing` on; other machines get it with this object

    @property
    def job_key(self) -> bytes:
        """Return bytes that differ between jobs, for the names of parts."""
        job = {name: value for name, value in self._record.items() if name != DRIVER}
        return blake2b(json.dumps(job, sort_keys=True).encode(), digest_size=16).digest()

    def check(self, *, resume: bool) -> None:
        """Check that it is new or empty, or holds parts of a labelling that is resumed.

        Raises:
            UsageError: If it is not.
        """
        names = self._folder.names()
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
        # Processes on two machines can have one number.
        driver = f"process {os.getpid()} on {gethostname()} ({token_hex(4)})"
        self._record = json.loads(json.dumps({**job, DRIVER: driver}))
        parts = self._take_over(job)
        if SUCCESS in self._folder.names():
            self._folder.delete(SUCCESS)
        try:
            yield parts
        except BaseException:
            with suppress(UsageError, OSError):
                if not self._folder.names() - {JOB} and self._recorded() == self._record:
                    self._folder.delete(JOB)
                    self._folder.remove()
            raise

    def check_ours(self) -> None:
        """Check that this machine sees what the driver wrote, and that no other driver took over.

        Raises:
            UsageError: If it does not, or another driver is recorded.
        """
        if difference := self._find_other():
            raise self._taken(*difference)

    def finish(self, parts: Iterable[str]) -> None:
        """Write `SUCCESS`, after removing what killed workers left.

        Raises:
            UsageError: If a part is missing or of another labelling, or another driver is recorded.
        """
        self.check_ours()
        expected, found = set(parts), self._parts()
        if missing := expected - found:
            raise UsageError(
                f"{self.out}: {len(missing)} parts that were written are missing, such as "
                f"{min(missing)}; rerun with --resume to write them again"
            )
        if others := found - expected:
            raise UsageError(
                f"{self.out}: found {min(others)}, which another labelling wrote meanwhile; "
                "expected no other parts; remove it, and rerun with --resume"
            )
        self._folder.remove_left_behind()
        self._folder.put(SUCCESS, b"")

    def write(self, name: str, data: bytes) -> None:
        """Write a part that is never seen half-written.

        Raises:
            UsageError: If another driver is recorded; a part of another job is not left.
        """
        self.check_ours()
        self._folder.put(name, data)
        if difference := self._find_other():
            if difference[0] != DRIVER:
                self._folder.delete(name)
            raise self._taken(*difference)

    def counts(self, part: str) -> PartCounts | None:
        """Return the counts of a part, or None if it is not there or not whole."""
        with suppress(OSError, ArrowException), self._folder.open(part) as file:
            return count_rows(file) if file else None
        return None

    def _parts(self) -> frozenset[str]:
        return frozenset(name for name in self._folder.names() if name.endswith(".parquet"))

    def _take_over(self, job: Job) -> frozenset[str]:
        """Record this driver, and return the parts that are there."""
        earlier = self._recorded()
        if self._parts():
            check_same_job(self.out, earlier, job, "pass another --out to start again")
        self._folder.create()
        self._put_record(self._record)
        parts = self._parts()
        if parts and find_difference(earlier, job):  # written meanwhile, by another driver
            self._put_record(earlier) if earlier else self._folder.delete(JOB)
            raise UsageError(
                f"{self.out}: another labelling writes to this folder: found {min(parts)}, "
                "expected no parts; pass another --out"
            )
        return parts

    def _recorded(self) -> Any:
        """Return the job in the folder: None if there is none, empty if it is damaged."""
        return self._folder.read_json(JOB)

    def _put_record(self, record: Any) -> None:
        self._folder.put(JOB, json.dumps(record, indent=1).encode() + b"\n")

    def _find_other(self) -> tuple[str, Any, Any] | None:
        """Return what differs in the record, as in `find_difference`."""
        found = self._recorded()
        if found is None:
            raise UsageError(
                f"{self.out}: the machine {gethostname()} finds no {JOB} here; expected a folder "
                "that all machines share, or a URI"
            )
        return find_difference(found, self._record)

    def _taken(self, name: str, there: Any, ours: Any) -> UsageError:
        if name == DRIVER:
            return UsageError(
                f"{self.out}: the same labelling was started again and continues there: {there} "
                f"in {JOB}; expected {ours}; stop one of the two"
            )
        return UsageError(
            f"{self.out}: another labelling writes to this folder: {name} in {JOB} is "
            f"{there!r}, expected {ours!r}; pass another --out"
        )


def count_rows(part: BinaryIO) -> PartCounts:
    """Return the numbers of rows per class id and per error code in a Parquet file."""
    table = pq.read_table(part, columns=COUNTED)
    return {name: _counted(table[name]) for name in COUNTED}


def _counted(values: pa.ChunkedArray) -> dict[str, int]:
    counts = pc.value_counts(values.drop_null()).to_pylist()
    return {entry["values"]: entry["counts"] for entry in counts}
