"""Files that a training or a labelling leaves out, from a list or from the table of an audit."""

import csv
import hashlib
import io
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from scda.models.errors import UsageError
from scda.models.files import printable

_SHOWN = 3  # names
_LONGEST = 200  # characters of one
_TABLE = "finding,domain,path"  # head of audit.csv
_COLUMNS = {"domain", "path", "remove"}


@dataclass(frozen=True)
class Excluded:
    """Files by absolute path, or by path relative to the folder of images, without `.` and `..`."""

    paths: frozenset[str] = frozenset()

    @property
    def digest(self) -> str | None:
        """SHA-256 of the paths in any order; None without paths."""
        names = sorted(os.fsencode(path) for path in self.paths)
        return hashlib.sha256(b"\0".join(names)).hexdigest() if names else None

    def holds(self, path: Path, name: str) -> bool:
        """Return whether a file is left out, by its place or by its relative name."""
        if not self.paths:
            return False
        return not self.paths.isdisjoint((os.path.abspath(path), os.path.normpath(name)))

    def others(self, paths: Iterable[Path], root: Path) -> Iterator[Path]:
        """Yield the files under a folder that are not excluded."""
        return (path for path in paths if not self.holds(path, str(path.relative_to(root))))

    def hints(self, roots: Sequence[Path]) -> list[str]:
        """Return a line about the names that are no file under one of the folders, if any are."""
        folders = [Path(os.path.abspath(root)) for root in roots]
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


def read_excluded(path: Path, roots: Mapping[str, Path]) -> Excluded:
    """Return the files of a list, or those that the table of an audit says to remove.

    Args:
        path: A name per line, names ended by NUL bytes, or the audit.csv of `scda-adapt audit`.
        roots: `source` and `target` → its folder. Names in the table are relative to these; its
            rows about a folder that is not among them do not count.

    Raises:
        UsageError: If the file cannot be read, or is a table and there is no folder.
    """
    try:
        content = path.read_bytes().removeprefix(b"\xef\xbb\xbf")
    except OSError as error:
        raise UsageError(f"{path}: cannot read the list: {error.strerror}") from None
    if content.startswith(_TABLE.encode()):
        names = _of_table(path, os.fsdecode(content), roots)
    else:
        end = b"\0" if b"\0" in content else b"\n"
        names = [os.fsdecode(name.removesuffix(b"\r")) for name in content.split(end)]
    return Excluded(frozenset(os.path.normpath(name) for name in names if name))


def _of_table(path: Path, content: str, roots: Mapping[str, Path]) -> list[str]:
    if not roots:
        raise UsageError(
            f"{path}: the table of an audit names files relative to one folder; expected one "
            "folder of images, or the list that audit --fix-list writes"
        )
    rows = csv.DictReader(io.StringIO(content, newline=""))
    if missing := _COLUMNS - set(rows.fieldnames or ()):
        raise UsageError(f"{path}: no column {min(missing)}; expected the audit.csv of an audit")
    try:
        return [
            os.path.abspath(roots[row["domain"]] / row["path"])
            for row in rows
            # A spreadsheet writes TRUE.
            if row["domain"] in roots and (row["remove"] or "").casefold() == "true"
        ]
    except csv.Error as error:
        raise UsageError(f"{path}: damaged: line {rows.line_num}: {error}") from None
