"""How fast a labelling goes, for who waits for it."""

import time
from collections import deque

_WINDOW_SECONDS = 30.0  # long enough to be calm, short enough to forget what `--resume` read back


class Throughput:
    """Files a second, of late."""

    def __init__(self) -> None:
        """Begin with nothing done."""
        self._seen: deque[tuple[float, int]] = deque()  # when, and how many were done by then

    def describe(self, done: int, failed: int) -> str:
        """Return the rate and the errors so far as a person reads them.

        Args:
            done: Files that have a row by now.
            failed: Those of them that have an error.
        """
        now = time.monotonic()
        self._seen.append((now, done))
        while now - self._seen[0][0] > _WINDOW_SECONDS:
            self._seen.popleft()
        began, before = self._seen[0]
        rate = (done - before) / (now - began) if now > began else 0.0
        return f"{rate:.1f}/s, {failed} failed"
