"""The files under a folder: one walk for training, labelling and object stores."""

import os
import posixpath
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from scda.models.errors import UsageError
from scda.models.files import TEMPORARY

_FOLDER = "/"  # ends the name of a folder in a listing


@dataclass(frozen=True)
class Skipped:
    """The numbers of what `walk` leaves out."""

    hidden: int = 0  # files and folders whose name starts with a dot
    linked_folders: int = 0  # links to folders, which are not followed

    def __add__(self, other: "Skipped") -> "Skipped":
        """Return the numbers of both."""
        return Skipped(self.hidden + other.hidden, self.linked_folders + other.linked_folders)


def is_hidden(name: str) -> bool:
    """Return whether a file or folder is skipped: `.x`, and macOS's `._x` beside every image."""
    return name.startswith(".")


def walk(root: Path, *, recursive: bool = True, follow_links: bool = False) -> Iterator[Path]:
    """Yield every file under `root`, depth first, sorted by name, without hidden ones.

    Whatever is no folder counts as a file, and fails as one if it cannot be read: a link to nothing
    or in a circle, a pipe, a socket. So does a sub-folder that cannot be listed.

    Args:
        root: Folder to read.
        recursive: Whether to enter sub-folders.
        follow_links: Whether to enter folders behind links. Each folder is entered once, so that
            a link that leads back ends.

    Raises:
        UsageError: If `root` is not a readable folder.
    """
    seen: set[tuple[int, int]] = set()

    def list_names(folder: str) -> list[str]:
        if follow_links:
            status = os.stat(folder)
            identity = (status.st_dev, status.st_ino)
            if identity in seen:
                return []
            seen.add(identity)
        return _list_folder(folder, follow_links=follow_links)

    try:
        yield from map(Path, depth_first(os.fspath(root), list_names, recursive=recursive))
    except OSError as error:
        raise UsageError(f"{root}: cannot read the folder: {error.strerror}") from None


def count_skipped(
    root: Path,
    *,
    recursive: bool = True,
    follow_links: bool = False,
    ours: Collection[str] = (),
) -> Skipped:
    """Return the numbers of what `walk` skips under `root`.

    Args:
        root: Folder to read; folders behind links are not entered.
        recursive: Whether to enter sub-folders.
        follow_links: Whether `walk` enters folders behind links.
        ours: Names that do not count, in addition to those of unfinished outputs.
    """
    counted = Skipped()

    def count(entry: os.DirEntry[str]) -> None:
        nonlocal counted
        if not is_hidden(entry.name):
            counted += Skipped(linked_folders=int(recursive and not follow_links))
        elif entry.name not in ours and not entry.name.startswith(TEMPORARY):
            counted += Skipped(hidden=1)

    def list_names(folder: str) -> list[str]:
        return _list_folder(folder, follow_links=False, on_skip=count)

    with suppress(OSError):
        for _ in depth_first(os.fspath(root), list_names, recursive=recursive):
            pass
    return counted


def depth_first(
    root: str, list_names: Callable[[str], list[str]], *, recursive: bool = True
) -> Iterator[str]:
    """Yield the path of every file under `root`, on any file system.

    A sub-folder that cannot be listed is yielded itself: it fails as one unreadable file, not as
    the whole scan. Memory holds the names of one folder per level.

    Args:
        root: Path of a folder.
        list_names: Returns the names in a folder in order; the name of a sub-folder ends in "/".
        recursive: Whether to enter sub-folders.

    Raises:
        OSError: If `root` cannot be listed.
    """
    open_folders = [(root, list_names(root)[::-1])]  # reversed: a stack returns them in order
    while open_folders:
        folder, names = open_folders[-1]
        if not names:
            open_folders.pop()
            continue
        path = posixpath.join(folder, names.pop())
        if not path.endswith(_FOLDER):
            yield path
        elif recursive:
            try:
                open_folders.append((path, list_names(path)[::-1]))
            except OSError:
                yield path.removesuffix(_FOLDER)


def visible_folders(root: Path) -> list[str]:
    """Return the sorted names of the folders in `root`, links to folders included.

    Raises:
        UsageError: If `root` is not a readable folder.
    """
    try:
        names = _list_folder(os.fspath(root), follow_links=True)
    except OSError as error:
        raise UsageError(f"{root}: cannot read the folder: {error.strerror}") from None
    return [name.removesuffix(_FOLDER) for name in names if name.endswith(_FOLDER)]


def _list_folder(
    folder: str,
    *,
    follow_links: bool,
    on_skip: Callable[[os.DirEntry[str]], None] = lambda entry: None,
) -> list[str]:
    """Return the names of the visible files and folders in a folder, sorted.

    Bare text: a million entries of `os.scandir` would take four times the memory.
    """
    names = []
    with os.scandir(folder) as entries:
        for entry in entries:
            folder_there = not is_hidden(entry.name) and _is_folder(entry)
            if is_hidden(entry.name) or (folder_there and entry.is_symlink() and not follow_links):
                on_skip(entry)
            else:
                names.append(entry.name + _FOLDER if folder_there else entry.name)
    return sorted(names, key=lambda name: name.removesuffix(_FOLDER))


def _is_folder(entry: os.DirEntry[str]) -> bool:
    """Return whether an entry is a folder or a link to one."""
    try:
        return entry.is_dir()
    except OSError:  # a link that leads in a circle, or to where nobody may look
        return False
