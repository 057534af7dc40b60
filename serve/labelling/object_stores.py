"""Files by URI, such as s3://bucket/photos, listed and read with pyarrow.

The text behind `://` is a bucket and a key, taken literally without unquoting.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

from pyarrow import ArrowException
from pyarrow.fs import FileSelector, FileSystem, FileType, LocalFileSystem

from scda.models.errors import ImageError, UsageError
from scda.models.folders import depth_first, is_hidden, walk
from scda.models.images import read_bytes
from scda.models.limits import MAX_BYTES
from scda.serve.labelling.sources import FileSelection


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


def list_stored(name: str) -> tuple[str, ...]:
    """Return a file itself, or the visible files directly in a folder, by path or URI.

    Raises:
        UsageError: If it cannot be read.
    """
    system, path = file_system_of(name)
    try:
        if system.get_file_info(path).type == FileType.File:
            return (name if is_uri(name) else path,)
        entries = system.get_file_info(FileSelector(path))
    except (OSError, ArrowException) as error:
        raise UsageError(f"{name}: cannot read: {error}") from None
    base = name.rstrip("/") if is_uri(name) else path
    files = (entry.base_name for entry in entries if entry.type == FileType.File)
    return tuple(f"{base}/{file}" for file in sorted(files) if not is_hidden(file))


@dataclass(frozen=True)
class StoredFiles:
    """The files under one URI; iterating gives the path of the row and the URI of the file."""

    uri: str
    selection: FileSelection
    alone: bool  # whether it is the only input: paths of rows are relative to it

    def __iter__(self) -> Iterator[tuple[str, str]]:
        """Yield every selected file in the order of `walk`; hidden files are skipped.

        Raises:
            UsageError: If the URI cannot be read.
        """
        system, root = file_system_of(self.uri)
        for path in self._paths(system, root):
            uri = self.uri.rstrip("/") + path[len(root) :]
            name = (path[len(root) + 1 :] if self.alone else "") or uri
            if self.selection.includes(name):
                yield name, uri

    def _paths(self, system: FileSystem, root: str) -> Iterator[str]:
        try:
            kind = system.get_file_info(root).type
        except OSError as error:
            raise UsageError(f"{self.uri}: cannot read: {error}") from None
        if kind == FileType.NotFound:
            raise UsageError(f"{self.uri}: no such file or folder")
        if kind == FileType.File:
            yield root
        elif isinstance(system, LocalFileSystem):  # a single broken link would end its listing
            selection = self.selection
            follow_links = selection.follow_links
            found = walk(Path(root), recursive=selection.recursive, follow_links=follow_links)
            yield from map(str, found)
        else:
            list_names = partial(_list_folder, system)
            try:
                yield from depth_first(root, list_names, recursive=self.selection.recursive)
            except OSError:  # the root fails as one unreadable file, as a sub-folder does
                yield root


def _list_folder(system: FileSystem, folder: str) -> list[str]:
    """Return the names of the visible files and folders in a folder, as `depth_first` expects."""
    entries = system.get_file_info(FileSelector(folder.rstrip("/")))
    visible = [entry for entry in entries if not is_hidden(entry.base_name)]
    visible.sort(key=lambda entry: entry.base_name)
    marks = {FileType.Directory: "/"}  # whatever else there is counts as a file, as in `walk`
    return [entry.base_name + marks.get(entry.type, "") for entry in visible]
