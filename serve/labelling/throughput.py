"""The current speed of a labelling."""

import time
from collections import deque

_WINDOW_SECONDS = 30.0  # long enough to be steady, short enough to exclude resumed rows


class Throughput:
    """Files per second over the last half minute."""

    def __init__(self) -> None:
        """Start at zero."""
        self._seen: deque[tuple[float, int]] = deque()  # time, and files done by then

    def describe(self, done: int, failed: int) -> str:
        """Return the rate and the number of errors as text.

        Args:
            done: Number of files with a row so far.
            failed: Number of files with an error so far.
        """
        now = time.monotonic()
        self._seen.append((now, done))
        while now - self._seen[0][0] > _WINDOW_SECONDS:
            self._seen.popleft()
        began, before = self._seen[0]
        rate = (done - before) / (now - began) if now > began else 0.0
        return f"{rate:.1f}/s, {failed} failed"
