"""Files by URI, such as s3://bucket/photos, read with pyarrow.

The text behind `://` is a bucket and a key, taken literally without unquoting.
"""

from functools import cache
from pathlib import Path

from pyarrow import ArrowException
from pyarrow.fs import FileSystem, LocalFileSystem

from scda.models.decoding.content import read_bytes
from scda.models.errors import ImageError, UsageError
from scda.models.limits import MAX_BYTES


def is_uri(name: str) -> bool:
    """Return whether a name is a URI rather than a local path."""
    return "://" in name


def file_system_of(name: str) -> tuple[FileSystem, str]:
    """Return the file system of a URI or local path, and the path within it.

    Raises:
        UsageError: If the file system is unknown or cannot be reached.
    """
    if not is_uri(name):
        return LocalFileSystem(), str(Path(name).absolute())
    scheme, _, rest = name.partition("://")
    bucket, _, key = rest.partition("/")
    system, base = _system(f"{scheme}://{bucket}/")
    return system, f"{base.rstrip('/')}/{key}".rstrip("/")


@cache  # a file system holds connections
def _system(uri: str) -> tuple[FileSystem, str]:
    try:
        system, base = FileSystem.from_uri(uri)
    except (OSError, ArrowException) as error:
        raise UsageError(f"{uri}: cannot be reached: {error}") from None
    return system, str(base)


def read_stored(name: str, *, max_bytes: int = MAX_BYTES) -> bytes:
    """Return the bytes of a file, by URI or by local path.

    Raises:
        ImageError: With code `unreadable`, or `too_many_bytes` above `max_bytes`.
    """
    if not is_uri(name):
        return read_bytes(Path(name), max_bytes=max_bytes)
    try:
        system, path = file_system_of(name)
        with system.open_input_file(path) as file:
            size = file.size()
            data = bytes(file.read()) if size <= max_bytes else b""
    except (OSError, ArrowException, UsageError) as error:
        raise ImageError("unreadable", f"cannot read: {error}") from None
    if size > max_bytes:
        raise ImageError("too_many_bytes", f"{size:,} bytes; the limit is {max_bytes:,}")
    return data
