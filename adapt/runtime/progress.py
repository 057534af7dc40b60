"""What a person sees of long work: a bar on a terminal, plain lines otherwise; all on stderr."""

import time
from datetime import timedelta
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

_LINE_EVERY_SECONDS = 10.0


class Reporter:
    """Messages, and one bar: for each piece of work, or for all pieces where `expect` said so."""

    def __init__(self, *, quiet: bool = False, verbose: bool = False) -> None:
        """Write to stderr; `quiet` leaves only warnings, `verbose` adds details."""
        self._console = Console(stderr=True, highlight=False, soft_wrap=True)
        self._quiet, self._verbose = quiet, verbose
        self._bars = self._console.is_terminal and not quiet
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            TaskProgressColumn(),
            TimeRemainingColumn(),
        )
        self._progress = Progress(*columns, console=self._console, transient=True)
        self._task = self._progress.add_task("", visible=False)
        self._expected = self._before = self._total = 0
        self._name, self._said_at = "", 0.0

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

    def mute(self) -> None:
        """Show and print nothing from here on, not even warnings: another process does."""
        self._console.quiet = True

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

    def expect(self, parts: int) -> None:
        """Put the pieces of work that follow on one bar of so many parts; 0 gives each its own."""
        self._expected = parts
        self._before = self._total = 0
        self._progress.reset(self._task, total=parts, description="", visible=False)

    def begin(self, name: str, total: int) -> None:
        """Start a piece of work of `total` parts, in place of the one before."""
        if self._expected:
            self._before += self._total
        else:
            self._progress.reset(self._task)
        self._name, self._total, self._said_at = name, total, time.monotonic()
        self._show(name, 0)

    def skip(self, parts: int) -> None:
        """Say that parts were done before, in place of the piece of work just begun."""
        self._before, self._total = self._before + parts, 0

    def done(self, parts: int, total: int | None = None, note: str = "") -> None:
        """Say how many parts of the work are done by now, and of how many, if that changed.

        Args:
            parts: Of the piece under way.
            total: In place of the one it began with.
            note: What else is to be said of it now.
        """
        self._total = total or self._total
        text = f"{self._name}: {parts} of {self._total}{note and f', {note}'}"
        self._show(text, parts)
        if not self._bars and time.monotonic() - self._said_at > _LINE_EVERY_SECONDS:
            self._said_at = time.monotonic()
            self.say(text + self._time_left())

    def _show(self, text: str, parts: int) -> None:
        self._progress.update(
            self._task,
            description=text,
            completed=self._before + parts,
            total=max(self._expected, self._before + self._total),
            visible=True,
        )

    def _time_left(self) -> str:
        if not self._expected:
            return ""
        (task,) = self._progress.tasks
        left = "" if task.time_remaining is None else f", {timedelta(seconds=task.time_remaining)}"
        return f"; {task.percentage:.0f}% of the run{left and f'{left} left'}"
