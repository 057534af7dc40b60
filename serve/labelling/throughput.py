"""The current speed of a labelling."""

import time
from collections import deque
from datetime import timedelta

_WINDOW_SECONDS = 30.0  # long enough to be steady, short enough to exclude resumed rows


class Throughput:
    """Files per second over the last half minute, or another window."""

    def __init__(self, window_seconds: float = _WINDOW_SECONDS) -> None:
        """Start at zero.

        Args:
            window_seconds: Length of the window; longer than the time between two calls of
                `describe`.
        """
        self._window = window_seconds
        self._seen: deque[tuple[float, int]] = deque()  # time, and files done by then

    def describe(self, done: int, failed: int, total: int = 0) -> str:
        """Return the rate, the number of errors and the time left as text.

        Args:
            done: Number of files with a row so far.
            failed: Number of files with an error so far.
            total: Number of files; 0 leaves out the time left.
        """
        now = time.monotonic()
        self._seen.append((now, done))
        while now - self._seen[0][0] > self._window:
            self._seen.popleft()
        began, before = self._seen[0]
        rate = (done - before) / (now - began) if now > began else 0.0
        left = (
            f", {timedelta(seconds=round((total - done) / rate))} left"
            if rate and total > done
            else ""
        )
        return f"{rate:.1f}/s, {failed} failed{left}"
