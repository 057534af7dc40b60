"""Everything that a labelling writes, all of it fed with the same rows."""

import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from scda.models.errors import UsageError
from scda.models.files import atomic_file, write_atomically, write_errors
from scda.serve.labelling.formats.labelstudio import LOCAL_FILES
from scda.serve.labelling.formats.lines import write_csv
from scda.serve.labelling.formats.registry import (
    EMBEDDINGS,
    FORMATS,
    Format,
    ending,
    endings,
    path_beside,
)
from scda.serve.labelling.formats.rows import LabellingInfo, Row, Write
from scda.serve.labelling.sorting import check_sort, sort_files

STDOUT = "-"


@dataclass(frozen=True, kw_only=True)
class Options:
    """What a labelling writes beside its tables, and what its rows say."""

    embeddings: Path | None = None  # a file ending in .npy
    sort_into: Path | None = None  # a new or empty folder
    summary: Path | None = None  # a file for what was done, as JSON
    mode: str = "copy"  # how a file gets there: copy, hardlink or symlink
    image_root: str = LOCAL_FILES  # what an annotation tool puts before a row's path
    top: int | None = None  # entries of `top`; five, or as many as there are classes
    min_confidence: float = 0.0  # below it, `review` is true


DEFAULTS = Options()


@contextmanager
def write_rows(
    outs: Sequence[str], about: LabellingInfo, options: Options = DEFAULTS
) -> Iterator[Write]:
    """Give a function that writes rows to every output; files appear at the end, whole.

    Args:
        outs: File names with an ending of `FORMATS`, or `-` for CSV on standard output.
        about: What is true of all rows.
        options: What else is written.

    Raises:
        UsageError: If an output cannot be written.
    """
    with ExitStack() as stack:
        writers = [stack.enter_context(output) for output in _outputs(outs, about, options)]

        def write(rows: Sequence[Row]) -> None:
            for writer in writers:
                writer(rows)

        yield write


def check_outputs(outs: Sequence[str], options: Options, inputs: Sequence[Path]) -> None:
    """Refuse outputs that could not be written at the end, before any work is done.

    Args:
        outs: As in `write_rows`.
        options: What else is written.
        inputs: What is to be labelled, patterns expanded.

    Raises:
        UsageError: If there is none, an ending is unknown, two are one, or a folder is missing or,
            where files are sorted into it, is not empty.
    """
    if not (outs or options.embeddings or options.sort_into):
        raise UsageError(
            f"no output; want --out FILE ending in {endings(FORMATS)}, --out {STDOUT}, "
            "--embeddings or --sort-into"
        )
    for out in outs:
        if out != STDOUT:
            _check_ending(Path(out), FORMATS, f", or {STDOUT} for CSV")
    if options.embeddings:
        _check_ending(options.embeddings, EMBEDDINGS)
    for path in replaced(outs, options):
        if path.is_dir() or not path.parent.is_dir():
            found = "is a folder" if path.is_dir() else f"no folder {path.parent}"
            raise UsageError(f"{path}: {found}; want a file name in a folder that exists")
    files = [path.resolve() for path in replaced(outs, options)]
    twice = [path for path, count in Counter(files).items() if count > 1]
    if twice or list(outs).count(STDOUT) > 1:
        raise UsageError(f"the same output twice: {twice[0] if twice else STDOUT}")
    if options.sort_into:
        check_sort(options.sort_into, options.mode, inputs)
        inside = [path for path in files if options.sort_into.resolve() in path.parents]
        if inside:
            raise UsageError(f"{inside[0]}: in the folder to sort into; want a file elsewhere")


def written(outs: Sequence[str], options: Options) -> list[Path]:
    """Return every file that rows are written to, sorted ones left out."""
    files = [Path(out) for out in outs if out != STDOUT]
    beside = [path for file in files if (path := path_beside(file, FORMATS))]
    return [*files, *beside, *([options.embeddings] if options.embeddings else [])]


def replaced(outs: Sequence[str], options: Options) -> list[Path]:
    """Return every file that will not be what it was: those of rows, and the summary."""
    return [*written(outs, options), *([options.summary] if options.summary else [])]


def _check_ending(path: Path, formats: Mapping[str, Format], also: str = "") -> None:
    if ending(path, formats) is None:
        raise UsageError(f"{path}: unknown ending; want {endings(formats)}{also}")


def _outputs(
    outs: Sequence[str], about: LabellingInfo, options: Options
) -> Iterator[AbstractContextManager[Write]]:
    # They are closed last first: files are only left sorted where every other output stands.
    if options.sort_into:
        yield sort_files(options.sort_into, options.mode, about)
    for out in outs:
        yield _to_stdout(about) if out == STDOUT else _to_file(Path(out), FORMATS, about)
    if options.embeddings:
        yield _to_file(options.embeddings, EMBEDDINGS, about)


@contextmanager
def _to_stdout(about: LabellingInfo) -> Iterator[Write]:
    with write_csv(sys.stdout.buffer, about) as write:
        yield write
    sys.stdout.buffer.flush()


@contextmanager
def _to_file(path: Path, formats: Mapping[str, Format], about: LabellingInfo) -> Iterator[Write]:
    form = formats[ending(path, formats) or ""]
    with atomic_file(path) as file, ExitStack() as stack:
        with write_errors(path):
            write = stack.enter_context(form.write(file, about))

        def checked(rows: Sequence[Row]) -> None:
            with write_errors(path):
                write(rows)

        yield checked
        with write_errors(path):
            stack.close()  # what ends the file: a bracket, a footer
    beside = path_beside(path, formats)
    if beside and form.beside:
        with write_errors(beside):
            write_atomically(beside, form.beside(about))
