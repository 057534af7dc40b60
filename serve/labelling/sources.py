"""The local files of a labelling, and the path of each in its row."""

import glob
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path
from typing import Any
from unicodedata import normalize

from scda.models.errors import UsageError
from scda.models.excluded import NOTHING, Excluded
from scda.models.files import real_path
from scda.models.folders import Skipped, count_skipped, walk
from scda.models.names import to_nfc
from scda.serve.labelling.journal import job_files


@dataclass(frozen=True, kw_only=True)
class FileSelection:
    """Rules that select the files to label."""

    recursive: bool = True  # include files in sub-folders
    follow_links: bool = False  # include files in linked folders
    include: tuple[str, ...] = ()  # patterns of names or paths; empty selects all
    exclude: tuple[str, ...] = ()  # patterns with precedence over `include`
    excluded: Excluded = NOTHING  # files to leave out, by absolute path or path of the row

    @property
    def rules(self) -> dict[str, Any]:
        """The rules but for the files to leave out, as plain JSON values."""
        return {name: value for name, value in vars(self).items() if name != "excluded"}

    @property
    def job(self) -> dict[str, Any]:
        """Properties that a resumed labelling must share, as plain JSON values."""
        return {**self.rules, "exclude_from": self.excluded.digest}

    def selects(self, name: str, path: Path) -> bool:
        """Return whether a file is selected, by the path of its row and its place."""
        return self.includes(name) and not self.excluded.holds(path, name)

    def includes(self, path: str) -> bool:
        """Return whether the patterns select the path of a row; `*` also matches `/`.

        Names and patterns are compared in composed Unicode: macOS writes accents decomposed.
        """
        if not (self.include or self.exclude):
            return True
        path = to_nfc(path)
        name = path.rpartition("/")[2]

        def fits(pattern: str) -> bool:
            composed = to_nfc(pattern)
            return fnmatchcase(path, composed) or fnmatchcase(name, composed)

        included = not self.include or any(map(fits, self.include))
        return included and not any(map(fits, self.exclude))


ALL_FILES = FileSelection()


@dataclass(frozen=True)
class LocalFiles:
    """Folders and single files to label; iterating gives the path of a row and its file."""

    roots: tuple[Path, ...]
    outputs: frozenset[Path]  # resolved; outputs of this or an earlier labelling, never labelled
    selection: FileSelection

    def __iter__(self) -> Iterator[tuple[str, Path]]:
        """Yield every selected file in sorted order, in constant memory.

        Raises:
            UsageError: If an input cannot be read.
        """
        for name, path in self._all():
            if self.selection.selects(name, path):
                yield name, path

    @property
    def root(self) -> Path:
        """Absolute folder that the paths of rows are relative to."""
        return (self._only_folder or Path()).absolute()

    @property
    def job(self) -> dict[str, Any]:
        """Properties that a resumed labelling must share, as plain JSON values."""
        return {"inputs": [str(root.absolute()) for root in self.roots], **self.selection.job}

    def count_skipped(self) -> Skipped:
        """Return the numbers of hidden files, and of linked folders, that are skipped."""
        ours = {path.name for out in self.outputs for path in job_files(out)}
        selection = self.selection
        counts = (
            count_skipped(
                root, recursive=selection.recursive, follow_links=selection.follow_links, ours=ours
            )
            for root in self.roots
            if os.path.isdir(root)
        )
        return sum(counts, Skipped())

    def _all(self) -> Iterator[tuple[str, Path]]:
        only, selection = self._only_folder, self.selection
        for root in self.roots:
            paths: Iterable[Path] = [root]  # a file that has vanished still gets a row
            if os.path.isdir(root):
                paths = walk(
                    root, recursive=selection.recursive, follow_links=selection.follow_links
                )
            for path in paths:
                if not self._is_output(path):
                    yield (path.relative_to(only) if only else path).as_posix(), path

    @property
    def _only_folder(self) -> Path | None:
        return self.roots[0] if len(self.roots) == 1 and os.path.isdir(self.roots[0]) else None

    @cached_property
    def _output_names(self) -> set[str]:
        return {out.name for out in self.outputs}

    def _is_output(self, path: Path) -> bool:
        # Names are compared first: resolving every path costs more than walking.
        if path.name not in self._output_names or real_path(path) not in self.outputs:
            return False
        return os.path.isfile(path)  # not a link to the place of an output that is not there yet


def find_local_files(
    roots: Sequence[Path], outputs: Iterable[Path], selection: FileSelection = ALL_FILES
) -> LocalFiles:
    """Return the files of the inputs, checked for overlaps.

    Args:
        roots: Folders, files, or patterns such as `photos/2026-*/*.jpg`.
        outputs: Files that will be written.
        selection: Files to label.

    Raises:
        UsageError: If an input is missing or inside another one, or a pattern matches nothing.
    """
    found = expand_patterns(roots, selection)
    for path in found:
        if not os.path.lexists(path):  # a broken link gets a row, as in a folder
            raise UsageError(f"{path}: no such file or folder")
    resolved = [_place(path) for path in found]
    counts = Counter(resolved)
    for path, place in zip(found, resolved, strict=True):
        if counts[place] > 1 or not counts.keys().isdisjoint(place.parents):
            raise UsageError(
                f"{path}: inside another input; its files would be labelled twice; "
                "remove one of the two"
            )
    return LocalFiles(tuple(found), frozenset(real_path(path) for path in outputs), selection)


def expand_patterns(roots: Sequence[Path], selection: FileSelection = ALL_FILES) -> list[Path]:
    """Return the inputs with patterns replaced by their sorted matches.

    As in a folder, whatever is no folder counts as a file, and linked folders count only with
    `follow_links`.

    Raises:
        UsageError: If a pattern matches nothing.
    """
    return [path for root in roots for path in _fitting(root, follow_links=selection.follow_links)]


def _fitting(root: Path, *, follow_links: bool) -> list[Path]:
    """Return the matches of a pattern; the literal name of an existing file is not a pattern."""
    if os.path.lexists(root) or not glob.has_magic(str(root)):
        return [root]
    fixed = next(n for n, part in enumerate(root.parts) if glob.has_magic(part))
    # Nearly every name is all composed or all decomposed.
    spellings = {str(root), *(normalize(form, str(root)) for form in ("NFC", "NFD"))}
    names = {name for text in spellings for name in glob.glob(text, recursive=True)}
    found = [
        path for path in map(Path, sorted(names)) if follow_links or not _is_linked(path, fixed)
    ]
    if not found:
        raise UsageError(f"{root}: matches no file and no folder")
    return found


def _is_linked(path: Path, fixed: int) -> bool:
    """Return whether a folder of a path is a link, except within its first `fixed` parts."""
    ends = range(fixed + 1, len(path.parts) + 1)
    folders = (Path(*path.parts[:end]) for end in ends)
    return any(folder.is_symlink() and os.path.isdir(folder) for folder in folders)


def _place(path: Path) -> Path:
    """Return the location of an input; a link to a file counts as a file of its own."""
    return real_path(path) if os.path.isdir(path) else real_path(path.parent) / path.name
