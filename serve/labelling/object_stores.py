"""Files by URI, such as s3://bucket/photos, listed with pyarrow."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from pyarrow import ArrowException
from pyarrow.fs import FileSelector, FileSystem, FileType, LocalFileSystem

from scda.models.decoding.stored import file_system_of, is_uri
from scda.models.errors import UsageError
from scda.models.folders import depth_first, is_hidden, walk
from scda.serve.labelling.sources import FileSelection


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
