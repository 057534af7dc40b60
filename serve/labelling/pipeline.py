"""Files to rows: several batches run in parallel, rows stay in order, memory is constant."""

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from scda.models.cpus import usable_cpus
from scda.models.decoding.decoders import decoders
from scda.models.errors import ImageError
from scda.models.predictor import TOP, Prediction, Predictor
from scda.models.preprocess import Pixels, Prepared
from scda.serve.imaging import valid_pixels, with_errors
from scda.serve.labelling.formats.rows import Row
from scda.serve.labelling.outputs import DEFAULTS, Options

Files = Sequence[tuple[str, Path | str]]  # path in the row, and file or URI
Start = Callable[[Files], Future[list[Row]]]


@contextmanager
def running_batches(
    predictor: Predictor, workers: int, options: Options = DEFAULTS, *, at_once: int | None = None
) -> Iterator[tuple[Start, int]]:
    """Give a function that starts a batch of files, and the number of batches to keep running.

    Each batch has a thread that waits for a decoding process, then for the model.

    Args:
        predictor: Loaded bundle.
        workers: Number of decoding processes; 0 decodes in this process.
        options: Options of the rows.
        at_once: Number of batches in the model at the same time; None keeps this machine busy.
    """
    at_once = at_once or predictor.session.at_once
    turn = threading.Semaphore(at_once)
    threads = at_once + (workers or usable_cpus())
    preprocessing, limits = predictor.manifest.preprocessing, options.limits
    with decoders(preprocessing, workers, limits) as decode, _pool(threads) as pool:

        def rows(batch: Files) -> list[Row]:
            prepared = decode([path for _, path in batch])
            with turn:
                return rows_of(predictor, [name for name, _ in batch], prepared, options)

        # More than one batch per thread: a slow batch does not block those behind it.
        yield lambda batch: pool.submit(rows, batch), 2 * threads


def in_order(
    start: Start, ahead: int, files: Iterable[tuple[str, Path | str]], *, batch_size: int
) -> Iterator[list[Row]]:
    """Yield the rows of files in order, `batch_size` at a time, with `ahead` batches running."""
    waiting, pending = iter(files), deque[Future[list[Row]]]()
    while batch := list(islice(waiting, batch_size)):
        pending.append(start(batch))
        if len(pending) == ahead:
            yield pending.popleft().result()
    while pending:
        yield pending.popleft().result()


def rows_of(
    predictor: Predictor, names: Sequence[str], prepared: Sequence[Prepared], options: Options
) -> list[Row]:
    """Return the row of each prepared file: its prediction or its error."""
    answers = with_errors(prepared, _answers(predictor, valid_pixels(prepared), options.top or TOP))
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


@contextmanager
def _pool(threads: int) -> Iterator[ThreadPoolExecutor]:
    pool = ThreadPoolExecutor(threads, thread_name_prefix="scda-label")
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)  # after an error the waiting batches are dropped
