"""Number of threads that the libraries of training use."""

from collections.abc import Iterator
from contextlib import contextmanager

import faiss
import torch
from threadpoolctl import threadpool_limits


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
