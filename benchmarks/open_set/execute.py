"""Execute runs: compute the features of their images once, then run in a few processes."""

import multiprocessing
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.open_set.results import Record
from benchmarks.open_set.runs import Inputs, Run, inputs_of, one_thread
from scda.adapt.data.dataset import job_backbone
from scda.adapt.data.features import extract
from scda.models.errors import DataError


def say(line: str) -> None:
    """Print a line of progress on standard error."""
    print(line, file=sys.stderr, flush=True)


def features_of(runs: Sequence[Run], cache: Path) -> dict[Path, NDArray[np.float32]]:
    """Return the backbone's features of every image that a run needs."""
    if not runs:
        return {}
    paths = sorted({path for run in runs for path in run.lists.source + run.lists.target})
    say(f"features of {len(paths)} images")
    extracted = extract(paths, job_backbone(runs[0].config), cache_folder=cache)
    if extracted.rejected:
        raise DataError(f"{extracted.rejected[0].path}: {extracted.rejected[0].message}")
    return dict(zip(extracted.paths, extracted.features, strict=True))


def records_of(
    runs: Sequence[Run],
    features: dict[Path, NDArray[np.float32]],
    measure: Callable[[Run, Inputs], Record],
    jobs: int,
) -> Iterator[Record]:
    """Yield the record of every run as it ends; `jobs` is the number of processes."""
    work = ((run, inputs_of(run.lists, features)) for run in runs)
    if jobs == 1:
        one_thread()
        for run, inputs in work:
            yield measure(run, inputs)
        return
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, mp_context=context, initializer=one_thread) as pool:
        pending: set[Future[Record]] = set()
        for run, inputs in work:
            pending.add(pool.submit(measure, run, inputs))
            if len(pending) > jobs:  # no more in advance: each has megabytes of features
                done, pending = wait(pending, return_when=FIRST_COMPLETED)
                yield from (future.result() for future in done)
        yield from (future.result() for future in pending)
