"""Files that were read before, which are taken for unchanged while size, times and inode are.

A later run with cached features would only read and hash them again, which takes as long as their
bytes take to arrive.
"""

import hashlib
import os
import sqlite3
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from scda.adapt.data.image_files import Stamp
from scda.models.limits import ImageLimits

# A file system may give two changes within this time the same time stamp (FAT: two seconds).
_SETTLED_SECONDS = 2.0
_TOGETHER = 1000  # files per transaction
_LARGEST = 2**63 - 1  # integer of SQLite
_FIND = (
    "SELECT num_bytes, content_ns, entry_ns, inode, digest FROM files "
    "WHERE path = ? AND num_bytes <= ? AND max_pixels <= ?"
)


@dataclass(frozen=True)
class FileState:
    """What tells that a file has changed, as far as one can see without reading it.

    Attributes:
        num_bytes: Its size.
        content_ns: When its content changed last, in nanoseconds; programs can set it.
        entry_ns: When its entry in the file system changed last; programs cannot set it.
        inode: Number of its entry.
        settled: Whether a change after this look would show.
    """

    num_bytes: int
    content_ns: int
    entry_ns: int
    inode: int
    settled: bool = field(default=True, compare=False)

    @classmethod
    def of(cls, path: Path) -> Self | None:
        """Return the state of a file now; None if there is no such file."""
        try:
            status = path.stat()
        except (OSError, ValueError):
            return None
        seen = status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino
        age_ns = time.time_ns() - status.st_ctime_ns  # of every change
        settled = age_ns > 1e9 * _SETTLED_SECONDS and max(map(abs, seen)) <= _LARGEST
        return cls(*seen, settled=settled)

    @property
    def stamp(self) -> Stamp:
        """The part of it that `read_stamp` returns."""
        return self.content_ns, self.num_bytes


@dataclass(frozen=True)
class KnownFile:
    """A file that was a usable image when it was read last."""

    state: FileState
    digest: str  # SHA-256 of its bytes


class KnownFiles:
    """The files that were read, in the database of their features."""

    def __init__(self, db: sqlite3.Connection) -> None:
        """Open or create the table.

        Raises:
            sqlite3.Error: If the database cannot be used.
        """
        self._db = db
        self._added: list[tuple[bytes, int, int, int, int, str, int]] = []
        db.execute(
            "CREATE TABLE IF NOT EXISTS files (path BLOB PRIMARY KEY, num_bytes INTEGER, "
            "content_ns INTEGER, entry_ns INTEGER, inode INTEGER, digest TEXT, max_pixels INTEGER)"
        )

    def find(self, paths: Sequence[Path], limits: ImageLimits) -> list[KnownFile | None]:
        """Return what is known of every file; None if it is not known to be within the limits."""
        bounds = limits.max_bytes, limits.max_pixels
        rows = (self._db.execute(_FIND, (_key(path), *bounds)).fetchone() for path in paths)
        return [KnownFile(FileState(*row[:4]), row[4]) if row else None for row in rows]

    def add(self, path: Path, file: KnownFile, limits: ImageLimits) -> None:
        """Add a file that is a usable image within the limits; `save` writes it."""
        of = file.state
        state = of.num_bytes, of.content_ns, of.entry_ns, of.inode
        self._added.append((_key(path), *state, file.digest, limits.max_pixels))
        if len(self._added) >= _TOGETHER:
            self.save()

    def save(self) -> None:
        """Write what was added since the last time."""
        with self._db:
            self._db.executemany(
                "INSERT OR REPLACE INTO files VALUES (?, ?, ?, ?, ?, ?, ?)", self._added
            )
        self._added = []


def _key(path: Path) -> bytes:
    """Return what stands for a path; whoever reads the cache need not know it."""
    return hashlib.sha256(os.fsencode(os.path.abspath(path))).digest()
