"""Inputs and outputs of a labelling on Ray, checked before any work is done."""

from collections.abc import Sequence
from itertools import permutations
from pathlib import Path

from pyarrow.fs import FileType

from scda.models.decoding.stored import file_system_of, is_uri
from scda.models.errors import DataError, UsageError
from scda.models.files import real_path
from scda.models.places import check_outside, check_replaceable
from scda.serve.labelling.file_lists import STDIN
from scda.serve.labelling.formats.registry import FORMATS, ending
from scda.serve.labelling.object_stores import StoredFiles, list_stored
from scda.serve.labelling.outputs import STDOUT
from scda.serve.labelling.ray.listing import SharedFileLists, Source
from scda.serve.labelling.sources import FileSelection, find_local_files
from scda.serve.labelling.summary import HEAD


def find_sources(
    inputs: Sequence[str],
    files_from: str | None,
    selection: FileSelection,
    outputs: Sequence[Path] = (),
) -> list[Source]:
    """Return the sources of files, after reading the first file of each.

    Raises:
        UsageError: If inputs are missing, mix paths and URIs, or overlap.
        DataError: If there is no file to label.
    """
    if bool(inputs) == (files_from is not None):
        raise UsageError("expected either IMAGES or --files-from")
    if selection.excluded.paths:
        raise UsageError("--engine ray does not support --exclude-from; leave it out")
    sources: list[Source]
    if files_from is not None:
        sources = [SharedFileLists(_lists(files_from), selection)]
    elif all(map(is_uri, inputs)):
        _check_apart(inputs)
        sources = [StoredFiles(uri, selection, alone=len(inputs) == 1) for uri in inputs]
    elif any(map(is_uri, inputs)):
        raise UsageError("found both local paths and URIs; expected only one kind per call")
    else:
        sources = [find_local_files([Path(name) for name in inputs], outputs, selection)]
    if not any([next(iter(source), None) for source in sources]):  # noqa: C419 - every one is read
        raise DataError(f"no file to label found in {', '.join(inputs) or files_from}")
    return sources


def _lists(files_from: str) -> tuple[str, ...]:
    """Return the lists to read: one, or those in a folder in the order of their names."""
    try:
        lists = () if files_from == STDIN else list_stored(files_from)
    except UsageError:
        lists = ()
    if not lists:
        raise UsageError(
            f"--files-from {files_from}: expected a list, or a folder of lists, as a path or URI "
            "(--engine ray)"
        )
    return lists


def _check_apart(uris: Sequence[str]) -> None:
    for inner, outer in permutations(uris, 2):
        if _is_in(inner, outer):
            raise UsageError(
                f"{inner}: inside another input; its files would be labelled twice; "
                "remove one of the two"
            )


def check_output(outs: Sequence[str], inputs: Sequence[str]) -> str:
    """Return the only output.

    Raises:
        UsageError: If it is not one folder or URI outside the inputs.
    """
    kinds = [ending(Path(out), FORMATS) for out in outs if out != STDOUT]
    if len(outs) != 1 or kinds not in ([None], [".parquet"]):
        found = ", ".join(outs) or "is missing"
        raise UsageError(
            f"--out {found}: expected one folder or URI for Parquet files (--engine ray)"
        )
    (out,) = outs
    if any(_is_in(out, given) for given in inputs):
        raise UsageError(f"{out}: inside an input; expected a folder outside the inputs")
    if not is_uri(out):
        check_outside(Path(out), ())
    system, path = file_system_of(out)
    if system.get_file_info(path).type == FileType.File:
        raise UsageError(f"{out}: already exists; expected a new or empty folder")
    if not is_uri(out) and not Path(path).parent.is_dir():
        raise UsageError(
            f"{out}: no folder {Path(path).parent}; expected a folder inside an existing one"
        )
    return out if is_uri(out) else path


def check_summary(path: Path | None) -> None:
    """Refuse a summary that would replace another file.

    Raises:
        UsageError: If it is a folder or another file, or its folder does not exist.
    """
    if not path:
        return
    if not path.parent.is_dir():
        raise UsageError(f"{path}: no folder {path.parent}; expected an existing folder")
    check_replaceable(path, {HEAD: b""})


def _is_in(inner: str, outer: str) -> bool:
    if is_uri(inner) or is_uri(outer):
        return f"{inner.rstrip('/')}/".startswith(f"{outer.rstrip('/')}/")
    return real_path(Path(outer)) in (real_path(Path(inner)), *real_path(Path(inner)).parents)
