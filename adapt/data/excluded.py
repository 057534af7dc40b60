"""Files that a training leaves out, from a list."""

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from scda.models.errors import UsageError


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
