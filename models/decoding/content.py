"""The bytes of a file, wherever it is."""

import os
import stat
from pathlib import Path
from typing import TypeAlias

from scda.models.errors import ImageError
from scda.models.limits import MAX_BYTES, ImageLimits

File: TypeAlias = Path | str | bytes  # a path, a URI, or the content


def read(file: File, limits: ImageLimits) -> bytes:
    """Return the content of a file.

    Raises:
        ImageError: With code `unreadable` or `too_many_bytes`.
    """
    if isinstance(file, bytes):
        return file
    if isinstance(file, Path):
        return read_bytes(file, max_bytes=limits.max_bytes)
    # Imported here: it takes longer than all other imports.
    from scda.models.decoding.stored import read_stored

    return read_stored(file, max_bytes=limits.max_bytes)


def read_bytes(path: Path, *, max_bytes: int = MAX_BYTES) -> bytes:
    """Return a file's bytes.

    Raises:
        ImageError: With code `unreadable`, or `too_many_bytes` above `max_bytes`.
    """
    try:
        # Asked first: opening a pipe wakes its other end, and opening a device may do anything.
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise ImageError("unreadable", "not a regular file")
        with open(path, "rb", opener=_without_waiting) as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):  # replaced meanwhile
                raise ImageError("unreadable", "not a regular file")
            data = file.read(max_bytes + 1)
    except OSError as error:
        raise ImageError("unreadable", f"cannot read: {error.strerror or error}") from None
    except ValueError as error:  # a NUL byte in a name that a list gave
        raise ImageError("unreadable", f"cannot read: {error}") from None
    if len(data) > max_bytes:
        size = f"{status.st_size:,} bytes"
        raise ImageError("too_many_bytes", f"{size}; the limit is {max_bytes:,}")
    return data


def _without_waiting(path: str, flags: int) -> int:
    """Open a file without blocking; a named pipe would wait for its other end."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))
