"""Folders of images to rows: one per file, streaming, in sorted order, in constant memory."""

import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path

from scda.models.cpus import usable_cpus
from scda.models.errors import DataError, ImageError
from scda.models.images import read_file
from scda.models.predictor import Predictor
from scda.serve.answer import Prepared, answer, prepare
from scda.serve.inputs import find_inputs
from scda.serve.rows import Row, check_outs, write_rows


@dataclass(frozen=True, kw_only=True)
class Summary:
    """What one labelling did."""

    labels: dict[str, int]  # class label → files, most frequent first
    errors: dict[str, int]  # error code → files, most frequent first
    hidden: int  # files and folders passed over because their name starts with a dot
    seconds: float
    provider: str  # what ran the model: cpu or cuda

    @property
    def num_failed(self) -> int:
        """How many files have an error row."""
        return sum(self.errors.values())

    @property
    def num_files(self) -> int:
        """How many files have a row."""
        return sum(self.labels.values()) + self.num_failed

    @property
    def images_per_second(self) -> float:
        """Files per second, bad ones included."""
        return self.num_files / max(self.seconds, 1e-9)

    def lines(self) -> list[str]:
        """Return the summary as a person reads it."""
        return [
            f"{self.num_files} files in {self.seconds:.1f} s, "
            f"{self.images_per_second:.1f} images/s on {self.provider}",
            *(f"{count:8}  {label}" for label, count in self.labels.items()),
            *(f"{count:8}  error: {code}" for code, count in self.errors.items()),
            *([f"{self.hidden:8}  hidden, passed over"] if self.hidden else []),
        ]


def label(
    predictor: Predictor,
    inputs: Sequence[Path],
    outs: Sequence[str],
    *,
    recursive: bool = True,
    batch_size: int = 32,
    workers: int = 0,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> Summary:
    """Write one row per file under `inputs` to every output; a bad file has a row, too.

    A row's path is relative to the folder where one folder is given; else it starts with the
    input as it was given.

    Args:
        predictor: The loaded bundle.
        inputs: Folders, or single files.
        outs: As in `write_rows`. Earlier results of these names are replaced, never labelled.
        recursive: Whether sub-folders are labelled as well.
        batch_size: Files per call of the model; the last call gets what is left.
        workers: Threads that read and decode; 0 takes the CPUs this process may use.
        on_progress: Called with the files done and the files in all, after each batch.

    Raises:
        UsageError: If an input or output does not exist or is wrong, or inputs overlap.
        DataError: If there is no file to label.
    """
    check_outs(outs)
    files = find_inputs(inputs, outs, recursive=recursive)
    total = sum(1 for _ in files)
    if not total:
        raise DataError(f"no file to label in {', '.join(map(str, inputs))}")
    labels, errors = Counter[str](), Counter[str]()
    hidden, started = files.count_hidden(), time.monotonic()
    with _pool(workers) as pool, write_rows(outs) as write:
        for rows in label_files(predictor, files, pool, batch_size=batch_size):
            write(rows)
            errors.update(row.answer.code for row in rows if isinstance(row.answer, ImageError))
            labels.update(
                row.answer.label for row in rows if not isinstance(row.answer, ImageError)
            )
            on_progress(labels.total() + errors.total(), total)
    return Summary(
        labels=dict(labels.most_common()),
        errors=dict(errors.most_common()),
        hidden=hidden,
        seconds=time.monotonic() - started,
        provider=predictor.session.provider,
    )


def label_files(
    predictor: Predictor, files: Iterable[tuple[str, Path]], pool: Executor, *, batch_size: int
) -> Iterator[list[Row]]:
    """Yield the rows of files in order, `batch_size` at a time.

    While the model works on one batch, the pool already reads the next.

    Args:
        predictor: The loaded bundle.
        files: The path to stand in the row, and the file.
        pool: What reads and decodes.
        batch_size: Files per call of the model.
    """
    prepared = _in_order(pool, partial(_prepare, predictor), files, ahead=2 * batch_size)
    while batch := list(islice(prepared, batch_size)):
        answers = answer(predictor, [pixels for _, pixels in batch])
        yield [Row(name, given) for (name, _), given in zip(batch, answers, strict=True)]


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
