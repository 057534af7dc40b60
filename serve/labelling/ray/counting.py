"""The number of files of a labelling, found while it runs."""

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress

from scda.models.errors import ScdaError

_ENDS_WITHIN_SECONDS = 1.0  # longer than to look at a file; a request to a store is not waited for


@contextmanager
def counted(sources: Iterable[Iterable[object]]) -> Iterator[Callable[[], int]]:
    """Give a function that returns the number of files: 0 until all are counted.

    A second listing costs little; waiting for its end before the first file is labelled would
    cost hours for 10^8 objects.

    Args:
        sources: Sources of files; one that cannot be listed leaves the number at 0.
    """
    total, stopped = 0, threading.Event()

    def count() -> None:
        nonlocal total
        found = 0
        with suppress(ScdaError, OSError):  # the labelling lists the same files, and tells it
            for source in sources:
                for _ in source:
                    if stopped.is_set():
                        return
                    found += 1
            total = found

    thread = threading.Thread(target=count, name="scda-count", daemon=True)
    thread.start()
    try:
        yield lambda: total
    finally:
        stopped.set()
        thread.join(_ENDS_WITHIN_SECONDS)
