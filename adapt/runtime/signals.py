"""Signals that stop a training run: the first waits for the step under way, the second does not."""

import signal
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any, Self

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Terminated(BaseException):
    """SIGTERM arrived."""


class Deferred:
    """While it is entered, the first SIGINT or SIGTERM is only noted; leaving it then stops.

    A second signal does what it did before, at once. Outside the main thread, which alone gets
    signals, and for a signal that is ignored, it changes nothing.
    """

    def __init__(self, agreed: Callable[[int], int] = int) -> None:
        """Nothing was noted yet.

        Args:
            agreed: Of the signal noted here, 0 for none, makes that of all processes of a run.
        """
        self._noted, self._agreed = 0, agreed
        self._before: dict[int, Any] = {}

    def heard(self) -> bool:
        """Return whether a signal arrived, here or at another process of the run."""
        agreed = self._agreed(self._noted)
        if agreed:  # else one that was noted meanwhile waits for the next step, where all hear it
            self._noted = agreed
        return agreed != 0

    def __enter__(self) -> Self:
        """Note signals from here on."""
        if threading.current_thread() is threading.main_thread():
            for number in _SIGNALS:
                if signal.getsignal(number) is not signal.SIG_IGN:
                    self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Raise KeyboardInterrupt or Terminated for what was noted."""
        self._give_back()
        if self._noted == signal.SIGINT:
            raise KeyboardInterrupt from None
        if self._noted:
            raise Terminated from None

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._noted = number
        self._give_back()

    def _give_back(self) -> None:
        while self._before:
            signal.signal(*self._before.popitem())
