"""Files that a training leaves out, from a list."""

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from scda.models.errors import UsageError
from scda.models.files import printable

_SHOWN = 3  # names
_LONGEST = 200  # characters of one


@dataclass(frozen=True)
class Excluded:
    """Files by absolute path, or by path relative to the folder of images."""

    paths: frozenset[str] = frozenset()

    def others(self, paths: Iterable[Path], root: Path) -> Iterator[Path]:
        """Yield the files under a folder that are not excluded."""
        for path in paths:
            names = {str(path.absolute()), str(path.relative_to(root))} if self.paths else set()
            if self.paths.isdisjoint(names):
                yield path

    def hints(self, roots: Sequence[Path]) -> list[str]:
        """Return a line about the names that are no file under one of the folders, if any are."""
        folders = [root.absolute() for root in roots]
        lost = [name for name in sorted(self.paths) if not any(map(partial(_holds, name), folders))]
        if not lost:
            return []
        shown = ", ".join(printable(name)[:_LONGEST] for name in lost[:_SHOWN])
        return [
            f"{len(lost)} of {len(self.paths)} names in the list of files to leave out are no file "
            f"of source or target: {shown}; expected absolute paths, or paths relative to the "
            "source or the target"
        ]


def _holds(name: str, folder: Path) -> bool:
    path = folder / name
    return path.is_relative_to(folder) and os.path.isfile(path)


NOTHING = Excluded()


def read_excluded(path: Path) -> Excluded:
    """Return the files of a list: a name per line, or names ended by NUL bytes.

    Raises:
        UsageError: If the list cannot be read.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path}: cannot read the list: {error.strerror}") from None
    end = b"\0" if b"\0" in content else b"\n"
    names = (name.removesuffix(b"\r") for name in content.removeprefix(b"\xef\xbb\xbf").split(end))
    return Excluded(frozenset(os.path.normpath(os.fsdecode(name)) for name in names if name))
