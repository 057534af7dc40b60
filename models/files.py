"""Files and folders that are whole or absent, and locks between processes."""

import glob
import os
import secrets
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from filelock import FileLock, Timeout

from scda.models.errors import UsageError

TEMPORARY = ".scda-"  # begins the name of an output that is not finished
_RANDOM_CHARACTERS = 8  # end the name of an unfinished file
_MOVED_ASIDE = ".old"  # ends the name of a folder that is being replaced
_ENDINGS = ("", ".lock", _MOVED_ASIDE)  # of what a killed process leaves


def write_atomically(path: Path, data: bytes | str) -> None:
    """Write a file that is never seen half-written.

    Raises:
        OSError: If it cannot be written; a file that was there before stays as it was.
    """
    with atomic_file(path, errors=name_errors) as file:
        file.write(data.encode() if isinstance(data, str) else data)


@contextmanager
def name_errors(path: Path) -> Iterator[None]:
    """Let an OSError name this file: one of a full disk names none, others name a draft.

    Raises:
        OSError: With the name.
    """
    try:
        yield
    except OSError as error:
        error.filename, error.filename2 = os.fspath(path), None
        raise


@contextmanager
def write_errors(path: Path) -> Iterator[None]:
    """Turn an OSError, such as a full disk, into a UsageError that names the file.

    Raises:
        UsageError: In place of any OSError.
    """
    try:
        yield
    except OSError as error:
        raise UsageError(f"{path}: cannot write: {error.strerror or error}") from None


@contextmanager
def atomic_file(
    path: Path, *, errors: Callable[[Path], AbstractContextManager[None]] = write_errors
) -> Iterator[BinaryIO]:
    """Open a file that appears at `path` when the block ends, whole, or not at all.

    Until then it has a hidden name that `walk` skips, and a lock that keeps other processes from
    removing it as left behind.

    Args:
        path: File to write or replace.
        errors: Wraps the file operations; errors of the block itself pass unchanged.

    Raises:
        UsageError: If it cannot be written.
    """
    draft = _draft_path(path)
    with errors(path):
        file = draft.open("xb")  # before the lock, which would create a missing folder
    try:
        with lock(draft):
            yield file
            with errors(path):
                file.flush()
                os.fsync(file.fileno())
                file.close()
                with suppress(FileNotFoundError):  # a new file has the mode that the umask gives
                    os.chmod(draft, stat.S_IMODE(path.stat().st_mode))
                os.replace(draft, path)
    except BaseException:
        with suppress(OSError):  # closing writes the rest, and the disk may be full
            file.close()
        draft.unlink(missing_ok=True)
        raise
    with errors(path):
        _sync(path.parent)


@contextmanager
def atomic_folder(folder: Path, *, replace: bool = True) -> Iterator[Path]:
    """Give an empty folder to fill that appears at `folder` when the block ends, or not at all.

    A folder that was there before is moved aside. It is put back if the new one cannot take its
    place, and removed otherwise; that of a killed process is put back by the next one. One process
    at a time writes a folder; it removes the drafts that killed ones left.

    Args:
        folder: Folder to write; missing parents are created.
        replace: Whether to replace a folder that is there.

    Raises:
        UsageError: If another process is writing the folder, or it is there and not to be replaced.
        OSError: If it cannot be written; it names the folder, or a file as it would be in it.
    """
    with name_errors(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
    with only_writer(folder):
        remove_left_behind(folder)
        draft = _draft_path(folder)
        try:
            with name_errors(folder):
                draft.mkdir()
            with _errors_in(draft, folder):
                yield draft
            if not replace and os.path.lexists(folder):
                raise UsageError(f"{folder} exists already; expected a new folder")
            with name_errors(folder):
                _put_in_place(draft, folder)
        finally:
            shutil.rmtree(draft, ignore_errors=True)


@contextmanager
def _errors_in(draft: Path, folder: Path) -> Iterator[None]:
    """Let an OSError name a file of a draft as it would be in the folder."""
    try:
        yield
    except OSError as error:
        if isinstance(error.filename, str | os.PathLike):
            path = Path(error.filename)
            if path.is_relative_to(draft):
                error.filename = os.fspath(folder / path.relative_to(draft))
        raise


def _put_in_place(draft: Path, folder: Path) -> None:
    """Rename a complete draft to its folder, in place of the one that is there."""
    for path in draft.rglob("*"):
        if path.is_file():
            _sync(path)
    old = draft.with_name(draft.name + _MOVED_ASIDE)
    if folder.exists():
        folder.rename(old)
    try:
        draft.rename(folder)
    except BaseException:
        if old.exists():
            old.rename(folder)
        raise
    _sync(folder.parent)
    with suppress(OSError):  # there was none before, or it stays for the next writer
        old.rename(draft)  # removed as a draft: half of it must never be put back


def put_back(folder: Path) -> None:
    """Put back the folder that a killed process had moved aside to replace it, if one did.

    What cannot be moved, or is still being written by another process, stays as it is.
    """
    if not os.path.lexists(folder) and _left_behind(folder, _MOVED_ASIDE):
        with lock(folder) as is_ours:
            if is_ours:
                _put_back(folder)


def _put_back(folder: Path) -> None:
    moved = [] if os.path.lexists(folder) else _left_behind(folder, _MOVED_ASIDE)
    with suppress(OSError):
        if moved:
            max(moved, key=lambda path: path.stat().st_ctime).rename(folder)


def remove_left_behind(path: Path) -> None:
    """Remove the drafts of a file that killed processes left; those of running ones stay.

    The drafts of a folder are removed as well, and one that was moved aside is put back if no other
    took its place; call it for a folder as its `only_writer` alone.
    """
    _put_back(path)
    for left in (left for end in _ENDINGS for left in _left_behind(path, end)):
        if left.is_dir() and not left.is_symlink():
            shutil.rmtree(left, ignore_errors=True)
            continue
        draft = left.with_name(left.name.removesuffix(".lock"))
        with suppress(OSError), lock(draft) as is_ours:
            if is_ours:
                draft.unlink(missing_ok=True)


def _left_behind(path: Path, end: str) -> list[Path]:
    """Return the drafts of a file or folder, or what a writer of it left under another ending."""
    random = "?" * _RANDOM_CHARACTERS  # more would belong to a file with a longer name
    return list(path.parent.glob(f"{TEMPORARY}{glob.escape(path.name)}.{random}{end}"))


def _draft_path(path: Path) -> Path:
    end = secrets.token_hex(_RANDOM_CHARACTERS // 2)
    return path.with_name(f"{TEMPORARY}{path.name}.{end}")


@contextmanager
def only_writer(path: Path, *, lock_file: Path | None = None) -> Iterator[None]:
    """Hold the lock of an output for the block; that of a killed process is taken over.

    Args:
        path: File or folder that is written.
        lock_file: File that holds the lock; None is `lock_path(path)`.

    Raises:
        UsageError: If another process holds it.
    """
    with lock(path, file=lock_file) as is_ours:
        if not is_ours:
            raise UsageError(
                f"{path}: another process is writing it; wait for it, or write elsewhere"
            )
        yield


def lock_path(path: Path) -> Path:
    """Return the hidden file that holds the lock of `path` while it is locked."""
    return path.with_name(f".{path.name.removeprefix('.')}.lock")


@contextmanager
def lock(path: Path, *, seconds: float = 0, file: Path | None = None) -> Iterator[bool]:
    """Hold the lock of a path for the block; give False if another process holds it.

    On a file system without locks the block runs unlocked.

    Args:
        path: File to lock; it need not exist.
        seconds: Longest time to wait for the other process.
        file: File that holds the lock; None is `lock_path(path)`.
    """
    file = file or lock_path(path)
    guard = FileLock(file, timeout=seconds)
    try:
        guard.acquire()
    except Timeout:
        yield False
        return
    except (OSError, NotImplementedError):
        yield True
        return
    try:
        yield True
    finally:
        with suppress(OSError):  # Windows removes it on release
            file.unlink()
        guard.release()


def _sync(path: Path) -> None:
    """Make a file, or the names in a folder, durable.

    Windows syncs only what is open for writing, which a folder never is: there, this does nothing.
    """
    if os.name == "nt":
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def real_path(path: Path) -> Path:
    """Return an absolute path without links; one that leads in a circle stays.

    `Path.resolve` would raise a RuntimeError for that one.
    """
    return Path(os.path.realpath(path))


def printable(name: str) -> str:
    """Return a file name as Unicode text; bytes that are not UTF-8 are written as escapes."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def is_inside(path: str) -> bool:
    """Return whether a relative path with "/" between folders stays in its folder."""
    parts = PurePosixPath(path)
    return not parts.is_absolute() and ".." not in parts.parts
