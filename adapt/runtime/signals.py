"""Signals that stop a run: the first waits for the step under way, the second acts at once."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any, Self

_SECONDS_TO_SPEAK = 0.5
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Terminated(BaseException):
    """SIGTERM arrived."""


class DeferredSignals:
    """Context in which the first SIGINT or SIGTERM is only noted; it is raised on exit.

    A second signal acts at once, as it did before. The context changes nothing outside the main
    thread, the only one that receives signals, and nothing for a signal that is ignored.
    """

    def __init__(self, agree: Callable[[int], int] = int) -> None:
        """Create a context that has noted no signal.

        Args:
            agree: Maps the signal noted in this process, 0 for none, to that of all processes.
        """
        self._noted, self._agree = 0, agree
        self._previous: dict[int, Any] = {}

    def received(self) -> bool:
        """Return whether a signal arrived, in this process or another one of the run."""
        agreed = self._agree(self._noted)
        if agreed:  # a signal noted meanwhile waits for the next step, when all processes see it
            self._noted = agreed
        return agreed != 0

    def __enter__(self) -> Self:
        """Begin to note signals."""
        if threading.current_thread() is threading.main_thread():
            for number in _SIGNALS:
                if signal.getsignal(number) is not signal.SIG_IGN:
                    self._previous[number] = signal.signal(number, self._note)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Restore the handlers.

        Raises:
            KeyboardInterrupt: If SIGINT was noted.
            Terminated: If SIGTERM was noted.
        """
        self._restore()
        if self._noted == signal.SIGINT:
            raise KeyboardInterrupt from None
        if self._noted:
            raise Terminated from None

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._noted = number
        self._restore()

    def _restore(self) -> None:
        while self._previous:
            signal.signal(*self._previous.popitem())


@contextmanager
def ended_within(seconds: float, last_words: Callable[[], object]) -> Iterator[None]:
    """End the process some time after a SIGTERM in the block, if it has not ended by then.

    Python runs a handler in the main thread alone, between two of its own instructions: not while
    a library computes, nor while a pool of threads finishes its work. What is left behind is what
    `kill -9` would leave.

    Args:
        seconds: Time for the handler and all cleaning up, from the signal on.
        last_words: Called before the process is ended inside the block.
    """
    heard, wake = os.pipe()
    if os.name != "nt":  # there, Python 3.11 cannot, and need not
        os.set_blocking(wake, False)
    terminated, left = threading.Event(), threading.Event()

    def watch() -> None:
        with os.fdopen(heard, "rb", buffering=0) as signals:
            while number := signals.read(1):
                if number[0] == signal.SIGTERM:
                    terminated.set()
                    time.sleep(seconds)
                    if not left.is_set():  # in a thread, for nobody may read what is written
                        speaker = threading.Thread(target=last_words, daemon=True)
                        speaker.start()
                        speaker.join(_SECONDS_TO_SPEAK)
                    os._exit(128 + signal.SIGTERM)

    threading.Thread(target=watch, daemon=True).start()
    before = signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    try:
        yield
    finally:
        left.set()
        if not terminated.is_set():  # else the end of the interpreter is watched, too
            signal.set_wakeup_fd(before)
            os.close(wake)
