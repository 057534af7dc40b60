"""Time and memory of the steps of a run, by looking at its stack many times a second."""

import os
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import FrameType

import psutil

_EVERY_SECONDS = 0.05
_PROCESSES_SECONDS = 0.5  # between two looks for processes that were started: they cost time
_PAGES_PER_GB = 2**30 / os.sysconf("SC_PAGE_SIZE")
OTHER = "other"


@dataclass
class Step:
    """What one step of a run has taken so far."""

    wall_seconds: float = 0.0
    cpu_seconds: float = 0.0  # of all threads
    peak_gb: float = 0.0  # largest resident memory, mapped files included, of all processes


class Watch(threading.Thread):
    """Watches the main thread. Outermost function that is named decides which step it is in.

    A call that keeps Python's lock is seen when it ends; its whole time counts to the step.
    """

    def __init__(self, steps: Mapping[str, Sequence[str]]) -> None:
        """Watch from `start` on.

        Args:
            steps: Step → names of its functions, each `module.function`.
        """
        super().__init__(daemon=True)
        self.steps: dict[str, Step] = {}
        self._step_of = {name: step for step, names in steps.items() for name in names}
        self.others_gb = 0.0  # largest resident memory of the processes that were started
        self._main = threading.main_thread().ident
        self._ended = threading.Event()

    def run(self) -> None:
        """Look until it is ended."""
        wall, cpu = time.monotonic(), time.process_time()
        looked, others = -_PROCESSES_SECONDS, list[psutil.Process]()
        while not self._ended.wait(_EVERY_SECONDS):
            step = self.steps.setdefault(self._current(), Step())
            wall_now, cpu_now = time.monotonic(), time.process_time()
            step.wall_seconds += wall_now - wall
            step.cpu_seconds += cpu_now - cpu
            if wall_now > looked + _PROCESSES_SECONDS:
                looked, others = wall_now, psutil.Process().children(recursive=True)
            of_others = sum(map(_gb, others))
            self.others_gb = max(self.others_gb, of_others)
            step.peak_gb = max(step.peak_gb, resident_gb() + of_others)
            wall, cpu = wall_now, cpu_now

    def end(self) -> dict[str, Step]:
        """Stop, and return the steps, the longest first."""
        self._ended.set()
        self.join()
        return dict(sorted(self.steps.items(), key=lambda of: -of[1].cpu_seconds))

    def _current(self) -> str:
        assert self._main is not None
        frame: FrameType | None = sys._current_frames().get(self._main)
        found = OTHER
        while frame is not None:
            module = frame.f_globals.get("__name__", "")
            found = self._step_of.get(f"{module}.{frame.f_code.co_name}", found)
            frame = frame.f_back
        return found


def resident_gb() -> float:
    """Return the resident memory of this process (Linux)."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) / _PAGES_PER_GB


def _gb(process: psutil.Process) -> float:
    with suppress(psutil.Error):  # it has ended
        return float(process.memory_info().rss) / 2**30
    return 0.0
