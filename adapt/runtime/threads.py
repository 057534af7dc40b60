"""Number of threads that the libraries of training use."""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import TypeVar

import faiss
import torch
from threadpoolctl import threadpool_limits

from scda.models.cpus import usable_cpus

_MOST = 8  # threads at once: each one holds its piece in memory

T = TypeVar("T")
R = TypeVar("R")


@contextmanager
def threads_kept() -> Iterator[None]:
    """Restore the number of threads of torch and faiss after the block."""
    of_torch, of_faiss = torch.get_num_threads(), faiss.omp_get_max_threads()
    try:
        yield
    finally:
        torch.set_num_threads(of_torch)
        faiss.omp_set_num_threads(of_faiss)


@contextmanager
def one_thread() -> Iterator[None]:
    """Compute in one thread within the block, and restore the number of threads after it.

    The head is small: one thread is nearly as fast as two, and much faster than two on a busy
    machine; and the result is the same on any number of cores.
    """
    with threads_kept(), threadpool_limits(1):
        torch.set_num_threads(1)
        faiss.omp_set_num_threads(1)
        yield


def in_parallel(function: Callable[[T], R], pieces: Iterable[T]) -> list[R]:
    """Return what a function makes of every piece, in order; all CPUs share the pieces.

    Of several pieces, one thread computes each, and the same way on every machine: results depend
    on how the work is divided, but not on the number of CPUs. That helps where libraries take the
    time, which release Python's lock.

    Args:
        function: Called with one piece; it may use NumPy, SciPy, faiss and torch on the CPU.
        pieces: All of them are taken at once.
    """
    given = list(pieces)
    threads = min(_MOST, usable_cpus(), len(given))
    if threads < 2:
        return list(map(function, given))
    alone = partial(faiss.omp_set_num_threads, 1)  # faiss counts the threads of each caller
    with threadpool_limits(1), ThreadPoolExecutor(threads, initializer=alone) as pool:
        return list(pool.map(function, given))
