"""Files that are whole or absent, and the images under a folder."""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from scda.models.errors import UsageError

TEMPORARY = ".scda-"  # begins the name of an output that is not finished
_FOLDER = "/"  # ends a folder's name; no file's name has one


def is_hidden(name: str) -> bool:
    """Return whether a file or folder is skipped: `.x`, and macOS's `._x` beside every image."""
    return name.startswith(".")


def walk(root: Path, *, recursive: bool = True, follow_links: bool = False) -> Iterator[Path]:
    """Yield every regular file under `root`, depth first, sorted by name; hidden ones left out.

    A sub-folder that cannot be read is yielded itself: it fails as one unreadable file, not as the
    whole scan.

    Args:
        root: A folder.
        recursive: Whether sub-folders are looked into.
        follow_links: Whether links to folders are, too; each folder is seen once, so that a link
            that leads back cannot hang a scan.

    Raises:
        UsageError: If `root` is no folder that can be read.
    """
    try:
        names = _names(root, follow_links=follow_links)
    except OSError as error:
        raise UsageError(f"{root}: cannot read the folder: {error.strerror}") from None
    seen = {_identity(root)} if follow_links else set()
    open_folders = [(os.fspath(root), names)]
    while open_folders:
        folder, names = open_folders[-1]
        if not names:
            open_folders.pop()
            continue
        path = os.path.join(folder, names.pop())
        if not path.endswith(_FOLDER):
            yield Path(path)
        elif recursive:
            try:
                if not follow_links or _is_new(path, seen):
                    open_folders.append((path, _names(path, follow_links=follow_links)))
            except OSError:
                yield Path(path)


def _is_new(folder: str, seen: set[tuple[int, int]]) -> bool:
    identity, before = _identity(folder), len(seen)
    seen.add(identity)
    return len(seen) > before


def _identity(folder: Path | str) -> tuple[int, int]:
    status = os.stat(folder)
    return status.st_dev, status.st_ino


def _names(folder: Path | str, *, follow_links: bool) -> list[str]:
    """Return what is to be seen in a folder, last name first: a stack gives it back in order.

    Bare text: of a million files in one folder, a million entries of `os.scandir` would be four
    times the memory.
    """
    with os.scandir(folder) as entries:
        names = [_marked(entry, follow_links) for entry in entries if not is_hidden(entry.name)]
    return sorted(filter(None, names), key=lambda name: name.removesuffix(_FOLDER), reverse=True)


def _marked(entry: os.DirEntry[str], follow_links: bool) -> str:
    """Return a file's name, a folder's with a mark, and nothing for what is neither."""
    try:
        if entry.is_dir(follow_symlinks=follow_links):
            return entry.name + _FOLDER
    except OSError:  # a link that leads in a circle
        return ""
    # Of such a link, entry.is_file() raises; os.path.isfile says no.
    plain = entry.is_file(follow_symlinks=False) or os.path.isfile(entry.path)
    return entry.name if plain else ""


def count_hidden(root: Path, *, recursive: bool = True, ours: Collection[str] = ()) -> int:
    """Return how many hidden files and folders `walk` leaves out under `root`.

    Args:
        root: A folder; those that it has links to are not looked into.
        recursive: As in `walk`.
        ours: Names that do not count, beside those of unfinished outputs.
    """
    hidden = 0
    for _, folders, files in os.walk(root):
        names = set(filter(is_hidden, (*folders, *files))).difference(ours)
        hidden += sum(not name.startswith(TEMPORARY) for name in names)
        folders[:] = [name for name in folders if recursive and not is_hidden(name)]
    return hidden


def write_atomically(path: Path, data: bytes | str) -> None:
    """Write a file that is never seen half-written: temporary file, fsync, rename."""
    raw = data.encode() if isinstance(data, str) else data
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(raw)
            _sync(file.fileno())
        os.chmod(name, 0o644)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    _sync_folder(path.parent)


@contextmanager
def atomic_file(path: Path) -> Iterator[BinaryIO]:
    """Give a file that stands at `path` at the end, whole, or not at all.

    Its temporary name is hidden, so that a walk through its folder passes over it.

    Raises:
        UsageError: If it cannot be written.
    """
    with write_errors(path):
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f"{TEMPORARY}{path.name}.")
    file = os.fdopen(handle, "wb")
    try:
        locked(file)  # whoever clears up after a killed process leaves it alone
        yield file
        with write_errors(path):
            file.flush()
            _sync(file.fileno())
            file.close()
            os.chmod(name, 0o644)
            os.replace(name, path)
    except BaseException:
        with suppress(OSError):  # closing writes what is left, and the disk may be full
            file.close()
        Path(name).unlink(missing_ok=True)
        raise


def locked(file: BinaryIO) -> bool:
    """Take a file for this process until it is closed; return whether no other one has it."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks: work goes on without
        pass
    return True


@contextmanager
def write_errors(path: Path) -> Iterator[None]:
    """Let an error of writing say which file it was.

    Raises:
        UsageError: In place of any OSError: a full disk, a folder that may not be written.
    """
    try:
        yield
    except OSError as error:
        raise UsageError(f"{path}: cannot write: {error.strerror or error}") from None


@contextmanager
def atomic_folder(folder: Path) -> Iterator[Path]:
    """Give an empty folder to fill; at the end it stands at `folder`, whole, or not at all.

    A folder that stood there before is moved aside, and put back if the new one cannot take its
    place; it is removed when the new one stands.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}."))
    old = draft.with_name(draft.name + ".old")
    try:
        yield draft
        for path in draft.rglob("*"):
            if path.is_file():
                with path.open("rb") as file:
                    _sync(file.fileno())
        draft.chmod(0o755)
        if folder.exists():
            folder.rename(old)
        try:
            draft.rename(folder)
        except BaseException:
            if old.exists():
                old.rename(folder)
            raise
        _sync_folder(folder.parent)
        shutil.rmtree(old, ignore_errors=True)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _sync(handle: int) -> None:
    os.fsync(handle)


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def printable(name: str) -> str:
    """Return a file name as Unicode text; bytes that are not UTF-8 are written as escapes."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def is_inside(path: str) -> bool:
    """Return whether a relative path, with "/" between folders, stays in the folder it is of."""
    parts = PurePosixPath(path)
    return not parts.is_absolute() and ".." not in parts.parts
