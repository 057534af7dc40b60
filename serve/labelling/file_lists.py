"""The files to label from a list of names, in its order."""

import codecs
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
from scda.models.files import real_path
from scda.models.folders import Skipped
from scda.serve.labelling.sources import ALL_FILES, FileSelection, LocalFiles, find_local_files

STDIN = "-"
_CHUNK = 1 << 16  # bytes read at once
_UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


@dataclass(frozen=True)
class ListedFiles:
    """Files named by a list; iterating gives the path in the list and the file."""

    file: BinaryIO  # one name per line, or names ended by NUL bytes
    outputs: frozenset[Path]  # resolved
    selection: FileSelection

    def __iter__(self) -> Iterator[tuple[str, Path]]:
        """Yield every selected name; a name without a file becomes a row with an error.

        Raises:
            UsageError: If an output would replace a file of the list, or the list is UTF-16.
        """
        output_names = {out.name for out in self.outputs}
        for name in filter(None, self._names()):
            path = Path(name)
            if not self.selection.selects(name, path):
                continue
            if path.name in output_names and real_path(path) in self.outputs:
                raise UsageError(f"{path}: an output would replace a file that is to be labelled")
            yield name, path

    @property
    def root(self) -> Path:
        """Absolute folder of relative names: the current one."""
        return Path().absolute()

    @property
    def job(self) -> dict[str, Any]:
        """Properties that a resumed labelling must share, as plain JSON values."""
        return {"inputs": ["a list", str(self.root)], **self.selection.job}

    def count_skipped(self) -> Skipped:
        """Return zeros: a listed file is never skipped."""
        return Skipped()

    def _names(self) -> Iterator[str]:
        """Yield the names; those between line breaks may come from Windows: a BOM, and CR LF."""
        self.file.seek(0)
        head = self.file.read(_CHUNK)
        if head.startswith(_UTF_16):
            raise UsageError("the list of files is UTF-16 text; save it as UTF-8")
        end, carriage = (b"\0", b"") if b"\0" in head else (b"\n", b"\r")
        self.file.seek(len(codecs.BOM_UTF8) if head.startswith(codecs.BOM_UTF8) else 0)
        left = b""
        while chunk := self.file.read(_CHUNK):
            *names, left = (left + chunk).split(end)
            yield from (os.fsdecode(name.removesuffix(carriage)) for name in names)
        yield os.fsdecode(left.removesuffix(carriage))


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
        UsageError: If the list cannot be read, or is an output.
    """
    places = frozenset(real_path(path) for path in outputs)
    if source != STDIN and real_path(Path(source)) in places:
        raise UsageError(f"{source}: an output would replace the list of files")
    with ExitStack() as stack:
        try:
            file = sys.stdin.buffer if source == STDIN else stack.enter_context(open(source, "rb"))
            # The list is read twice: to count, then to label.
            if source == STDIN or not file.seekable():
                copy = stack.enter_context(tempfile.TemporaryFile())
                shutil.copyfileobj(file, copy)
                file = copy
        except OSError as error:  # also where standard input is a folder
            raise UsageError(f"{source}: cannot read the list: {error.strerror}") from None
        yield ListedFiles(file, places, selection)
