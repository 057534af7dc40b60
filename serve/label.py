"""Folders of images to rows: one per file, streaming, in sorted order, in constant memory."""

import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from itertools import chain, islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from scda.models.cpus import usable_cpus
from scda.models.errors import DataError, ImageError, UsageError
from scda.models.images import read_file
from scda.models.predictor import TOP, Prediction, Predictor
from scda.models.preprocess import Pixels
from scda.serve.answer import Prepared, prepare, usable, with_errors
from scda.serve.inputs import ALL, Choice, Inputs
from scda.serve.journal import Job, done_before, kept, open_journal
from scda.serve.listed import Listed, open_files
from scda.serve.outputs import DEFAULTS, Options, check_outs, write_rows, written
from scda.serve.rows import About, Row
from scda.serve.summary import Summary


def label(
    predictor: Predictor,
    inputs: Sequence[Path],
    outs: Sequence[str],
    *,
    options: Options = DEFAULTS,
    choice: Choice = ALL,
    files_from: str | None = None,
    batch_size: int = 32,
    workers: int = 0,
    resume: bool = False,
    max_errors: int | None = None,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> Summary:
    """Write one row per file under `inputs` to every output; a bad file has a row, too.

    A row's path is relative to the folder where one folder is given; else it starts with the
    input as it was given.

    Args:
        predictor: The loaded bundle.
        inputs: Folders, single files, or patterns.
        outs: As in `write_rows`. Earlier results of these names are replaced, never labelled.
        options: What else is written, and what rows say.
        choice: Which of the files are labelled.
        files_from: In place of inputs: a list of files, or `-` for one on standard input.
        batch_size: Files per call of the model; the last call gets what is left.
        workers: Threads that read and decode; 0 takes the CPUs this process may use.
        resume: Whether to go on where a stopped labelling with the same first output stopped.
        max_errors: Gives up when more files have failed.
        on_progress: Called with the files done and the files in all, after each batch.

    Raises:
        UsageError: If an input or output does not exist or is wrong, inputs overlap, or what is
            resumed is another labelling.
        DataError: If there is no file to label, or too many failed.
    """
    check_options(predictor, options)
    check_outs(outs, options, inputs)
    outputs = written(outs, options)
    with open_files(inputs, files_from, outputs, choice) as files:
        total = sum(1 for _ in files)
        if not total:
            raise DataError(f"no file to label in {', '.join(map(str, inputs)) or files_from}")
        labels, errors = Counter[str](), Counter[str]()
        hidden, started = files.count_hidden(), time.monotonic()
        about = _about(predictor, files, options)
        job = _job(predictor, files, options, batch_size)
        with (
            open_journal(outputs, job, resume=resume) as journal,
            _pool(workers) as pool,
            write_rows(outs, about, options) as write,
        ):
            waiting = iter(files)
            done = done_before(journal, waiting)
            rest = label_files(predictor, waiting, pool, batch_size=batch_size, options=options)
            for rows in chain(done, kept(journal, rest, features=options.embeddings is not None)):
                write(rows)
                errors.update(row.answer.code for row in rows if isinstance(row.answer, ImageError))
                labels.update(
                    row.answer.label for row in rows if not isinstance(row.answer, ImageError)
                )
                on_progress(labels.total() + errors.total(), total)
                _check_errors(errors, max_errors)
        return Summary(
            labels=dict(labels.most_common()),
            errors=dict(errors.most_common()),
            hidden=hidden,
            seconds=time.monotonic() - started,
            provider=predictor.session.provider,
            model_id=about.model_id,
            names_version=about.names_version,
        )


def _check_errors(errors: Counter[str], most: int | None) -> None:
    if most is not None and errors.total() > most:
        (code, count), *_ = errors.most_common(1)
        raise DataError(
            f"{errors.total()} files failed, {count} of them {code}; want {most} at most "
            "(--max-errors); --resume goes on"
        )


def _job(predictor: Predictor, files: Inputs | Listed, options: Options, batch_size: int) -> Job:
    return {
        "model_id": predictor.manifest.id,
        "names_version": predictor.names.version,
        **files.job,
        "top": options.top,
        "min_confidence": options.min_confidence,
        "embeddings": options.embeddings is not None,
        # Of a batch of another size the last digits differ.
        "batch_size": batch_size,
        "provider": predictor.session.provider,
    }


def label_files(
    predictor: Predictor,
    files: Iterable[tuple[str, Path]],
    pool: Executor,
    *,
    batch_size: int,
    options: Options = DEFAULTS,
) -> Iterator[list[Row]]:
    """Yield the rows of files in order, `batch_size` at a time.

    While the model works on one batch, the pool already reads the next.

    Args:
        predictor: The loaded bundle.
        files: The path to stand in the row, and the file.
        pool: What reads and decodes.
        batch_size: Files per call of the model.
        options: What rows say.
    """
    prepared = _in_order(pool, partial(_prepare, predictor), files, ahead=2 * batch_size)
    while batch := list(islice(prepared, batch_size)):
        names, pixels = zip(*batch, strict=True)
        yield rows_of(predictor, names, pixels, options)


def rows_of(
    predictor: Predictor, names: Sequence[str], prepared: Sequence[Prepared], options: Options
) -> list[Row]:
    """Return the row of each prepared file: what the model says, or why it was not asked."""
    answers = with_errors(prepared, _answers(predictor, usable(prepared), options.top or TOP))
    return [
        Row(name, given)
        if isinstance(given, ImageError)
        else Row(name, given[0], given[0].confidence < options.min_confidence, given[1])
        for name, given in zip(names, answers, strict=True)
    ]


def _answers(
    predictor: Predictor, good: list[Pixels], top: int
) -> list[tuple[Prediction, NDArray[np.float32]]]:
    """Return the prediction and the features of each image."""
    if not good:
        return []
    outputs = predictor.run(good)
    return list(zip(predictor.describe(outputs, top=top), outputs.features, strict=True))


def check_options(predictor: Predictor, options: Options) -> None:
    """Refuse options of rows that this bundle has no answer to.

    Raises:
        UsageError: If a confidence is none, or there are not that many classes.
    """
    if not 0 <= options.min_confidence <= 1:
        raise UsageError(f"--min-confidence {options.min_confidence:g}; want 0 to 1")
    num_classes = len(predictor.standing)
    if options.top is not None and not 1 <= options.top <= num_classes:
        raise UsageError(f"--top {options.top}; want 1 to {num_classes}, the number of classes")


def _about(predictor: Predictor, files: Inputs | Listed, options: Options) -> About:
    return About(
        model_id=predictor.manifest.id,
        names_version=predictor.names.version,
        classes=predictor.standing,
        width=predictor.session.width,
        root=files.root,
        image_root=options.image_root,
    )


def _prepare(predictor: Predictor, path: Path) -> Prepared:
    return prepare(predictor, partial(read_file, path))


def _in_order(
    pool: Executor,
    work: Callable[[Path], Prepared],
    files: Iterable[tuple[str, Path]],
    *,
    ahead: int,
) -> Iterator[tuple[str, Prepared]]:
    """Yield what `work` makes of each file, in order, with at most `ahead` under way."""
    pending: deque[tuple[str, Future[Prepared]]] = deque()
    for name, path in files:
        pending.append((name, pool.submit(work, path)))
        if len(pending) == ahead:
            oldest, future = pending.popleft()
            yield oldest, future.result()
    for oldest, future in pending:
        yield oldest, future.result()


@contextmanager
def _pool(workers: int) -> Iterator[Executor]:
    pool = ThreadPoolExecutor(workers or usable_cpus(), thread_name_prefix="scda-decode")
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)  # after an error, nobody needs the files still waiting
