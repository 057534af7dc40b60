"""A list of files to label, in the list's order."""

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
    """Files that a list names; iterating gives a row's path, as the list says it, and its file."""

    file: BinaryIO  # a name on each line, or one before each NUL byte
    outputs: frozenset[Path]  # resolved
    selection: FileSelection

    def __iter__(self) -> Iterator[tuple[str, Path]]:
        """Yield every chosen name; one that is no file becomes a row with an error.

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
        """The absolute folder that relative names are of: the one the program was started in."""
        return Path().absolute()

    @property
    def job(self) -> dict[str, Any]:
        """What a resumed labelling must have in common, as plain JSON values."""
        return {"inputs": ["a list", str(self.root)], **vars(self.selection)}

    def count_hidden(self) -> int:
        """Return 0: what is named is not passed over."""
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
    """Give the files to label: of inputs, or of a list where one is given.

    Raises:
        UsageError: As `find_local_files` and `open_file_list` do, or if both or none are given.
    """
    if bool(inputs) == (files_from is not None):
        raise UsageError("want IMAGES or --files-from, one of them")
    if files_from is None:
        yield find_local_files(inputs, outputs, selection)
        return
    with open_file_list(files_from, outputs, selection) as listed:
        yield listed


@contextmanager
def open_file_list(
    source: str, outputs: Iterable[Path], selection: FileSelection = ALL_FILES
) -> Iterator[ListedFiles]:
    """Give the files that a list names.

    Args:
        source: A file or pipe, or `-` for standard input; names on lines, or ended by NUL bytes as
            `find -print0` writes them.
        outputs: Files that will be written.
        selection: Which of the names are labelled.

    Raises:
        UsageError: If the list cannot be read.
    """
    places = frozenset(path.resolve() for path in outputs)
    with ExitStack() as stack:
        try:
            file = sys.stdin.buffer if source == STDIN else stack.enter_context(open(source, "rb"))
        except OSError as error:
            raise UsageError(f"{source}: cannot read the list: {error.strerror}") from None
        if source == STDIN or not file.seekable():  # it is read twice: counted, then labelled
            copy = stack.enter_context(tempfile.TemporaryFile())
            shutil.copyfileobj(file, copy)
            file = copy
        yield ListedFiles(file, places, selection)
