"""The folder of a demo: only that of an earlier demo is ever replaced."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from scda.models.errors import UsageError
from scda.models.files import only_writer

_MARK = ".scda-demo"  # marks a folder of the demo
_LOCK_FILE = ".demo.lock"


def check_room(out: Path, *, overwrite: bool) -> None:
    """Check that a folder is new, or holds a demo that may be replaced.

    Raises:
        UsageError: If it holds anything but a demo, or a demo and `overwrite` is False.
    """
    try:
        there = list(_entries(out)) if out.exists() else []
    except OSError as error:
        raise UsageError(f"{out}: cannot use this folder: {error.strerror}") from None
    if there and not (out / _MARK).is_file():
        raise UsageError(f"{out}: is not a demo; expected a new folder, or one of an earlier demo")
    if there and not overwrite:
        raise UsageError(f"{out}: holds an earlier demo; pass --overwrite to replace it")


@contextmanager
def make_room(out: Path, *, overwrite: bool) -> Iterator[None]:
    """Empty the folder of a demo, and let no other process make one there during the block.

    Raises:
        UsageError: As in `check_room`, or if another process is making a demo there.
    """
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"{out}: cannot use this folder: {error.strerror}") from None
    with only_writer(out, lock_file=out / _LOCK_FILE):
        check_room(out, overwrite=overwrite)
        for path in _entries(out):
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
        (out / _MARK).touch()
        yield


def _entries(out: Path) -> list[Path]:
    return [path for path in out.iterdir() if path.name != _LOCK_FILE]
