"""The files to label from a list of names, in its order."""

import os
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from scda.models.errors import UsageError
from scda.serve.labelling.sources import ALL_FILES, FileSelection, LocalFiles, find_local_files

STDIN = "-"
_CHUNK = 1 << 16  # bytes read at once


@dataclass(frozen=True)
class ListedFiles:
    """Files named by a list; iterating gives the path in the list and the file."""

    file: BinaryIO  # one name per line, or names ended by NUL bytes
    outputs: frozenset[Path]  # resolved
    selection: FileSelection

    def __iter__(self) -> Iterator[tuple[str, Path]]:
        """Yield every selected name; a name without a file becomes a row with an error.

        Raises:
            UsageError: If an output would replace a file of the list.
        """
        output_names = {out.name for out in self.outputs}
        for name in filter(self.selection.includes, filter(None, self._names())):
            path = Path(name)
            if path.name in output_names and path.resolve() in self.outputs:
                raise UsageError(f"{path}: an output would replace a file that is to be labelled")
            yield name, path

    @property
    def root(self) -> Path:
        """Absolute folder of relative names: the current one."""
        return Path().absolute()

    @property
    def job(self) -> dict[str, Any]:
        """Properties that a resumed labelling must share, as plain JSON values."""
        return {"inputs": ["a list", str(self.root)], **vars(self.selection)}

    def count_hidden(self) -> int:
        """Return 0: a listed file is never skipped."""
        return 0

    def _names(self) -> Iterator[str]:
        self.file.seek(0)
        end = b"\0" if b"\0" in self.file.read(_CHUNK) else b"\n"
        self.file.seek(0)
        left = b""
        while chunk := self.file.read(_CHUNK):
            *names, left = (left + chunk).split(end)
            yield from map(os.fsdecode, names)
        yield os.fsdecode(left)


@contextmanager
def open_files(
    inputs: Sequence[Path],
    files_from: str | None,
    outputs: Sequence[Path],
    selection: FileSelection,
) -> Iterator[LocalFiles | ListedFiles]:
    """Give the files to label, from either inputs or a list.

    Raises:
        UsageError: If both or neither are given, or as in `find_local_files` and
            `open_file_list`.
    """
    if bool(inputs) == (files_from is not None):
        raise UsageError("expected either IMAGES or --files-from")
    if files_from is None:
        yield find_local_files(inputs, outputs, selection)
        return
    with open_file_list(files_from, outputs, selection) as listed:
        yield listed


@contextmanager
def open_file_list(
    source: str, outputs: Iterable[Path], selection: FileSelection = ALL_FILES
) -> Iterator[ListedFiles]:
    """Open a list of files.

    Args:
        source: File or pipe, or `-` for standard input, with one name per line, or names ended by
            NUL bytes as from `find -print0`.
        outputs: Files that will be written.
        selection: Names to label.

    Raises:
        UsageError: If the list cannot be read.
    """
    places = frozenset(path.resolve() for path in outputs)
    with ExitStack() as stack:
        try:
            file = sys.stdin.buffer if source == STDIN else stack.enter_context(open(source, "rb"))
        except OSError as error:
            raise UsageError(f"{source}: cannot read the list: {error.strerror}") from None
        if (
            source == STDIN or not file.seekable()
        ):  # the list is read twice: to count, then to label
            copy = stack.enter_context(tempfile.TemporaryFile())
            shutil.copyfileobj(file, copy)
            file = copy
        yield ListedFiles(file, places, selection)
