"""What a person sees of long work: bars on a terminal, plain lines otherwise; all on stderr."""

import time
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)

_LINE_EVERY_SECONDS = 10.0


class Reporter:
    """Messages and one progress bar at a time."""

    def __init__(self, *, quiet: bool = False, verbose: bool = False) -> None:
        """Write to stderr; `quiet` leaves only warnings, `verbose` adds details."""
        self._console = Console(stderr=True, highlight=False, soft_wrap=True)
        self._quiet, self._verbose = quiet, verbose
        self._bars = self._console.is_terminal and not quiet
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
        )
        self._progress = Progress(*columns, console=self._console, transient=True)
        self._task: TaskID | None = None
        self._name, self._total, self._said_at = "", 0, 0.0

    def __enter__(self) -> Self:
        """Show the bar."""
        if self._bars:
            self._progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Take the bar away."""
        if self._bars:
            self._progress.stop()

    def say(self, message: str) -> None:
        """Print a line, unless quiet."""
        if not self._quiet:
            self._console.print(message, markup=False)

    def detail(self, message: str) -> None:
        """Print a line, only if verbose."""
        if self._verbose:
            self.say(message)

    def warn(self, message: str) -> None:
        """Print a line that starts with `warning:`, always."""
        self._console.print(f"warning: {message}", markup=False)

    def begin(self, name: str, total: int) -> None:
        """Start a piece of work of `total` parts, in place of the one before."""
        self._name, self._total, self._said_at = name, total, time.monotonic()
        if not self._bars:
            return
        if self._task is not None:
            self._progress.remove_task(self._task)
        self._task = self._progress.add_task(name, total=total)

    def done(self, parts: int, total: int | None = None, note: str = "") -> None:
        """Say how many parts of the work are done by now, and of how many, if that changed.

        Args:
            parts: Of the piece under way.
            total: In place of the one it began with.
            note: What else is to be said of it now.
        """
        self._total = total or self._total
        if self._bars and self._task is not None:
            text = f"{self._name}{note and f', {note}'}"
            self._progress.update(self._task, completed=parts, total=self._total, description=text)
        elif time.monotonic() - self._said_at > _LINE_EVERY_SECONDS:
            self._said_at = time.monotonic()
            self.say(f"{self._name}: {parts} of {self._total}{note and f', {note}'}")
