"""Label files on this machine: one row per file, in sorted order, in constant memory."""

import math
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from scda.models.cpus import num_workers, usable_cpus
from scda.models.errors import DataError, UsageError
from scda.models.excluded import NOTHING
from scda.models.places import followed_folders, training_folder
from scda.models.predictor import Predictor
from scda.serve.labelling.file_lists import ListedFiles, open_files
from scda.serve.labelling.formats.rows import LabellingInfo, Row
from scda.serve.labelling.journal import Job, is_resumed, open_journal, recorded, replayed_batches
from scda.serve.labelling.outputs import (
    DEFAULTS,
    Options,
    check_outputs,
    journalled,
    replaced,
    write_rows,
)
from scda.serve.labelling.pipeline import in_order, running_batches
from scda.serve.labelling.sources import (
    ALL_FILES,
    FileSelection,
    LocalFiles,
    expand_patterns,
    find_local_files,
)
from scda.serve.labelling.summary import Summary, Tally

# On CPUs each core has its own batch; larger ones are no faster and take more memory.
BATCH_SIZE = {"cpu": 8, "cuda": 32, "openvino": 8}
_MAX_BATCH_SIZE = 1024  # 154 MB of pixels, in each of the batches that run in parallel
_FEW = 200  # files; below, starting processes takes longer than decoding


def label(
    predictor: Predictor,
    inputs: Sequence[Path],
    outs: Sequence[str],
    *,
    options: Options = DEFAULTS,
    selection: FileSelection = ALL_FILES,
    files_from: str | None = None,
    batch_size: int | None = None,
    workers: int | None = None,
    resume: bool = False,
    max_errors: int | None = None,
    on_progress: Callable[[int, int, int], None] = lambda done, total, failed: None,
) -> Summary:
    """Write one row per file under `inputs` to every output, bad files included.

    The path in a row is relative to the input if that is a single folder; otherwise it starts
    with the input as given.

    Args:
        predictor: Loaded bundle.
        inputs: Folders, single files, or patterns.
        outs: As in `write_rows`. Earlier outputs of these names are replaced, never labelled.
        options: Further outputs, and options of the rows.
        selection: Files to label.
        files_from: List of files instead of inputs, or `-` for standard input.
        batch_size: Number of files per call of the model; None suits the provider.
        workers: Number of decoding processes; 0 decodes in this process. None uses all available
            CPUs, or 0 for few files. Never more than batches, or 4 per CPU.
        resume: Whether to continue a stopped labelling with the same first output.
        max_errors: Largest number of failed files.
        on_progress: Called after each batch with the numbers of files done, in total and failed.

    Raises:
        UsageError: If an input or output is missing or wrong, inputs overlap, or the resumed
            labelling differs.
        DataError: If there is no file to label, or too many failed.
    """
    check_options(predictor, options, batch_size, workers)
    found = expand_patterns(inputs, selection)
    run = predictor.manifest.run
    read = [*found, *_followed(found, selection), *training_folder(run, "target")]
    check_outputs(outs, options, read, training_folder(run, "source"), resume=resume)
    with open_files(found, files_from, replaced(outs, options), selection) as files:
        total = _count(files, inputs or [files_from])
        excluded = _count_excluded(files, total)
        skipped, started, tally = files.count_skipped(), time.monotonic(), Tally()
        about = _about(predictor, files, options)
        size = batch_size or BATCH_SIZE[predictor.session.provider]
        job = _job(predictor, files, options, size)
        with (
            open_journal(journalled(outs, options), job, resume=resume) as journal,
            running_batches(predictor, _processes(workers, total, size), options) as (start, ahead),
            write_rows(outs, about, options, resumed=is_resumed(journal)) as write,
        ):

            def take(rows: Sequence[Row]) -> None:
                write(rows)
                tally.add(rows)
                on_progress(tally.num_done, total, tally.num_failed)
                check_errors(tally.errors, max_errors, resumable=journal is not None)

            waiting = iter(files)
            for rows in replayed_batches(journal, waiting):
                take(rows)
            resumed = tally.num_done
            todo = in_order(start, ahead, waiting, batch_size=size)
            for rows in recorded(journal, todo, features=options.embeddings is not None):
                take(rows)
        summary = Summary(
            **tally.counts(),
            hidden=skipped.hidden,
            linked_folders=skipped.linked_folders,
            resumed=resumed,
            excluded=excluded,
            seconds=time.monotonic() - started,
            provider=predictor.session.provider,
            model_id=about.model_id,
            names_version=about.names_version,
        )
        if options.summary:
            summary.write(options.summary)
        return summary


def label_rows(
    predictor: Predictor,
    inputs: Sequence[Path],
    *,
    options: Options = DEFAULTS,
    selection: FileSelection = ALL_FILES,
    batch_size: int | None = None,
    workers: int | None = None,
) -> Iterator[Row]:
    """Yield the rows that `label` would write, without writing any file.

    Args:
        predictor: Loaded bundle.
        inputs: Folders, single files, or patterns.
        options: Options of the rows; those of files are ignored.
        selection: Files to label.
        batch_size: As in `label`.
        workers: As in `label`.

    Raises:
        UsageError: If an input or option is wrong. This and the next are raised by the call.
        DataError: If there is no file to label.
    """
    check_options(predictor, options, batch_size, workers)
    files = find_local_files(inputs, (), selection)
    size = batch_size or BATCH_SIZE[predictor.session.provider]
    processes = _processes(workers, _count(files, inputs), size)
    return _streamed(predictor, files, processes, options, size)


def _followed(found: Sequence[Path], selection: FileSelection) -> list[Path]:
    """Return the folders that are read through links in the inputs."""
    return followed_folders(found) if selection.follow_links and selection.recursive else []


def _streamed(
    predictor: Predictor, files: LocalFiles, workers: int, options: Options, batch_size: int
) -> Iterator[Row]:
    with running_batches(predictor, workers, options) as (start, ahead):
        for rows in in_order(start, ahead, files, batch_size=batch_size):
            yield from rows


def _count(files: LocalFiles | ListedFiles, given: Sequence[object]) -> int:
    """Return the number of files, which are listed once more when they are labelled."""
    total = sum(1 for _ in files)
    if not total:
        besides = " besides those of --exclude-from" if files.selection.excluded.paths else ""
        raise DataError(f"no file to label found in {', '.join(map(str, given))}{besides}")
    return total


def _count_excluded(files: LocalFiles | ListedFiles, total: int) -> int | None:
    """Return the number of files that a list leaves out of `total` others; None without a list."""
    if not files.selection.excluded.paths:
        return None
    whole = replace(files, selection=replace(files.selection, excluded=NOTHING))
    return sum(1 for _ in whole) - total


def check_errors(errors: Counter[str], most: int | None, *, resumable: bool = True) -> None:
    """Check the number of failed files so far.

    Args:
        errors: Number of files per error code.
        most: Largest number; None allows any.
        resumable: Whether the labelling can be resumed.

    Raises:
        DataError: If there are more.
    """
    if most is not None and errors.total() > most:
        (code, count), *_ = errors.most_common(1)
        advice = "rerun with --resume to continue" if resumable else "allow more to label them all"
        raise DataError(
            f"{errors.total()} files failed, {count} of them {code}; expected {most} at most "
            f"(--max-errors); {advice}"
        )


def _job(
    predictor: Predictor, files: LocalFiles | ListedFiles, options: Options, batch_size: int
) -> Job:
    return {
        "model_id": predictor.manifest.id,
        "names_version": predictor.names.version,
        **files.job,
        "top": options.top,
        "min_confidence": options.min_confidence,
        **vars(options.limits),
        "embeddings": options.embeddings is not None,
        "sort_into": str(options.sort_into.absolute()) if options.sort_into else None,
        "mode": options.mode if options.sort_into else None,
        # Another batch size changes the last digits.
        "batch_size": batch_size,
        "provider": predictor.session.provider,
    }


def check_places(
    inputs: Sequence[Path],
    outs: Sequence[str],
    options: Options,
    selection: FileSelection,
    files_from: str | None,
    *,
    resume: bool = False,
) -> None:
    """Check inputs and outputs; the arguments are those of `label`, which checks them as well.

    It takes no time, while loading a model takes seconds.

    Raises:
        UsageError: If an input or output is missing or wrong, or inputs overlap.
    """
    found = expand_patterns(inputs, selection)
    check_outputs(outs, options, [*found, *_followed(found, selection)], resume=resume)
    if files_from is None and inputs:
        find_local_files(inputs, (), selection)


def check_options(
    predictor: Predictor,
    options: Options,
    batch_size: int | None = None,
    workers: int | None = None,
) -> None:
    """Check the options of rows against a bundle, and the numbers of files and processes.

    Raises:
        UsageError: If a number is out of range, or `top` exceeds the number of classes.
    """
    if batch_size is not None and not 1 <= batch_size <= _MAX_BATCH_SIZE:
        raise UsageError(f"--batch-size {batch_size}; expected 1 to {_MAX_BATCH_SIZE}")
    if workers is not None and workers < 0:
        raise UsageError(f"--workers {workers}; expected 0 or more")
    if not 0 <= options.min_confidence <= 1:
        raise UsageError(f"--min-confidence {options.min_confidence:g}; expected 0 to 1")
    num_classes = len(predictor.active_classes)
    if options.top is not None and not 1 <= options.top <= num_classes:
        raise UsageError(f"--top {options.top}; expected 1 to {num_classes}, the number of classes")


def _about(
    predictor: Predictor, files: LocalFiles | ListedFiles, options: Options
) -> LabellingInfo:
    return LabellingInfo(
        model_id=predictor.manifest.id,
        names_version=predictor.names.version,
        classes=predictor.active_classes,
        width=predictor.session.width,
        root=files.root,
        image_root=options.image_root,
    )


def _processes(workers: int | None, files: int, batch_size: int) -> int:
    few = 0 if files < _FEW else usable_cpus()
    return few if workers is None else num_workers(workers, math.ceil(files / batch_size))
