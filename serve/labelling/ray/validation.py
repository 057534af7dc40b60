"""What a labelling on Ray reads and where it writes, checked before any work is done."""

from collections.abc import Sequence
from itertools import permutations
from pathlib import Path
from typing import Any

from pyarrow.fs import FileSelector, FileType

from scda.models.errors import DataError, UsageError
from scda.serve.labelling.file_lists import STDIN
from scda.serve.labelling.formats.registry import FORMATS, ending
from scda.serve.labelling.object_stores import StoredFiles, is_uri, place
from scda.serve.labelling.outputs import STDOUT
from scda.serve.labelling.ray.stages import SharedFileList, Source
from scda.serve.labelling.sources import FileSelection, find_local_files
from scda.serve.labelling.summary import HEAD


def find_sources(
    inputs: Sequence[str],
    files_from: str | None,
    selection: FileSelection,
    outputs: Sequence[Path] = (),
) -> list[Source]:
    """Return what lists the files, checked by a look at the first of each.

    Raises:
        UsageError: If inputs are missing, of both kinds, or inside each other.
        DataError: If there is no file to label.
    """
    if bool(inputs) == (files_from is not None):
        raise UsageError("want IMAGES or --files-from, one of them")
    sources: list[Source]
    if files_from is not None:
        if files_from == STDIN or not Path(files_from).is_file():
            raise UsageError(
                f"--files-from {files_from}: --engine ray wants a file that every machine can read"
            )
        sources = [SharedFileList(str(Path(files_from).absolute()), selection)]
    elif all(map(is_uri, inputs)):
        _check_apart(inputs)
        sources = [StoredFiles(uri, selection, alone=len(inputs) == 1) for uri in inputs]
    elif any(map(is_uri, inputs)):
        raise UsageError("local paths and URIs together; want one kind in one labelling")
    else:
        sources = [find_local_files([Path(name) for name in inputs], outputs, selection)]
    if not any([next(iter(source), None) for source in sources]):  # noqa: C419 every one is read
        raise DataError(f"no file to label in {', '.join(inputs) or files_from}")
    return sources


def _check_apart(uris: Sequence[str]) -> None:
    for inner, outer in permutations(uris, 2):
        if _is_in(inner, outer):
            raise UsageError(f"{inner}: inside another input; its files would be labelled twice")


def check_output(outs: Sequence[str], inputs: Sequence[str]) -> str:
    """Return the one output.

    Raises:
        UsageError: If it is not one new folder or URI, or lies inside what is read.
    """
    kinds = [ending(Path(out), FORMATS) for out in outs if out != STDOUT]
    if len(outs) != 1 or kinds not in ([None], [".parquet"]):
        found = ", ".join(outs) or "is missing"
        raise UsageError(f"--out {found}: --engine ray wants one, a folder or URI for Parquet")
    (out,) = outs
    if any(_is_in(out, given) for given in inputs):
        raise UsageError(f"{out}: inside what is labelled; want a folder elsewhere")
    system, path = place(out)
    kind = system.get_file_info(path).type
    if kind == FileType.File or (kind == FileType.Directory and _is_full(system, path)):
        raise UsageError(f"{out}: is there already; want a new or empty folder")
    if not is_uri(out) and not Path(path).parent.is_dir():
        raise UsageError(f"{out}: no folder {Path(path).parent}; want a folder in one that exists")
    return out


def check_summary(path: Path | None) -> None:
    """Refuse a summary that would replace something else: a list or storage may name any file.

    Raises:
        UsageError: If it is a folder, in none, or there is another file of its name.
    """
    if not path:
        return
    if not path.parent.is_dir():
        raise UsageError(f"{path}: no folder {path.parent}; want one that exists")
    if path.exists() and not (path.is_file() and _head(path) in (b"", HEAD)):
        raise UsageError(f"{path}: is there already, and no summary; want a new file")


def _head(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(len(HEAD))


def _is_full(system: Any, folder: str) -> bool:
    return bool(system.get_file_info(FileSelector(folder)))


def _is_in(inner: str, outer: str) -> bool:
    if is_uri(inner) or is_uri(outer):
        return f"{inner.rstrip('/')}/".startswith(f"{outer.rstrip('/')}/")
    return Path(outer).resolve() in (Path(inner).resolve(), *Path(inner).resolve().parents)
