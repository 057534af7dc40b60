"""The outputs of a labelling, all written from the same rows."""

import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from scda.models.errors import UsageError
from scda.models.files import atomic_file, real_path, write_atomically, write_errors
from scda.models.limits import LIMITS, ImageLimits
from scda.models.places import check_replaceable
from scda.serve.labelling.formats.labelstudio import LOCAL_FILES
from scda.serve.labelling.formats.lines import write_csv
from scda.serve.labelling.formats.registry import (
    EMBEDDINGS,
    FORMATS,
    HEADS,
    Format,
    ending,
    endings,
    path_beside,
)
from scda.serve.labelling.formats.rows import LabellingInfo, Row, Write
from scda.serve.labelling.journal import journal_path
from scda.serve.labelling.sorting import check_sort, sort_files
from scda.serve.labelling.summary import HEAD as SUMMARY_HEAD

STDOUT = "-"
EARLIER = HEADS | {SUMMARY_HEAD: b""}  # how an output of an earlier labelling begins, and ends


@dataclass(frozen=True, kw_only=True)
class Options:
    """Outputs beside the tables, and options of the rows."""

    embeddings: Path | None = None  # file ending in .npy
    sort_into: Path | None = None  # new or empty folder
    summary: Path | None = None  # JSON file
    mode: str = "copy"  # copy, hardlink or symlink
    image_root: str = LOCAL_FILES  # prefix of paths for an annotation tool
    top: int | None = None  # entries of `top`; None is five, or all classes if fewer
    min_confidence: float = 0.0  # below, `review` is true
    limits: ImageLimits = LIMITS  # of the images that are read


DEFAULTS = Options()


@contextmanager
def write_rows(
    outs: Sequence[str],
    about: LabellingInfo,
    options: Options = DEFAULTS,
    *,
    resumed: bool = False,
) -> Iterator[Write]:
    """Give a function that writes rows to every output; files appear at the end, complete.

    Args:
        outs: File names with an ending of `FORMATS`, or `-` for CSV on standard output.
        about: Facts shared by all rows.
        options: Further outputs.
        resumed: Whether the first rows are those of a labelling that was stopped.

    Raises:
        UsageError: If an output cannot be written.
    """
    with ExitStack() as stack:
        writers = [
            stack.enter_context(output)
            for output in _outputs(outs, about, options, resumed=resumed)
        ]

        def write(rows: Sequence[Row]) -> None:
            for writer in writers:
                writer(rows)

        yield write


def check_outputs(
    outs: Sequence[str],
    options: Options,
    inputs: Sequence[Path],
    linked: Sequence[Path] = (),
    *,
    resume: bool = False,
) -> None:
    """Check that every output can be written, before any work is done.

    Args:
        outs: As in `write_rows`.
        options: Further outputs.
        inputs: Files and folders to label, patterns expanded, the folders that are read through
            links in them, and the target of training.
        linked: The source of training, whose class folders may be links.
        resume: Whether to continue a labelling that was stopped.

    Raises:
        UsageError: If there is no output, an ending is unknown, an output is given twice or
            would replace anything but an earlier output, a folder is missing, or the folder to sort
            into is not empty.
    """
    if not (outs or options.embeddings or options.sort_into):
        raise UsageError(
            f"no output; expected --out FILE ending in {endings(FORMATS)}, --out {STDOUT}, "
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
            raise UsageError(f"{path}: {found}; expected a file name in an existing folder")
        check_replaceable(path, EARLIER)
    files = [real_path(path) for path in replaced(outs, options)]
    twice = [path for path, count in Counter(files).items() if count > 1]
    if twice or list(outs).count(STDOUT) > 1:
        raise UsageError(f"the same output is given twice: {twice[0] if twice else STDOUT}")
    if options.sort_into:
        resumed = resume and journal_path(journalled(outs, options)[0]).is_file()
        check_sort(options.sort_into, options.mode, inputs, linked, resumed=resumed)
        inside = [path for path in files if real_path(options.sort_into) in path.parents]
        if inside:
            raise UsageError(
                f"{inside[0]}: inside the folder to sort into; expected a file elsewhere"
            )


def written(outs: Sequence[str], options: Options) -> list[Path]:
    """Return every file that rows are written to, except sorted ones."""
    files = [Path(out) for out in outs if out != STDOUT]
    beside = [path for file in files if (path := path_beside(file, FORMATS))]
    return [*files, *beside, *([options.embeddings] if options.embeddings else [])]


def journalled(outs: Sequence[str], options: Options) -> list[Path]:
    """Return every output that a stopped labelling can be resumed with; standard output is none."""
    return [*written(outs, options), *([options.sort_into] if options.sort_into else [])]


def replaced(outs: Sequence[str], options: Options) -> list[Path]:
    """Return every file that will be written or replaced: those of rows, and the summary."""
    return [*written(outs, options), *([options.summary] if options.summary else [])]


def _check_ending(path: Path, formats: Mapping[str, Format], also: str = "") -> None:
    if ending(path, formats) is None:
        raise UsageError(f"{path}: unknown ending; expected {endings(formats)}{also}")


def _outputs(
    outs: Sequence[str], about: LabellingInfo, options: Options, *, resumed: bool
) -> Iterator[AbstractContextManager[Write]]:
    # Outputs are closed in reverse: files stay sorted only if every other output is complete.
    if options.sort_into:
        yield sort_files(options.sort_into, options.mode, about, resumed=resumed)
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
            stack.close()  # writes the end of the file, such as a footer
    beside = path_beside(path, formats)
    if beside and form.beside:
        with write_errors(beside):
            write_atomically(beside, form.beside(about))
