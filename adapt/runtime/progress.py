"""Progress of long work: a bar on a terminal, plain lines otherwise; all on stderr."""

import time
from datetime import timedelta
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

_LINE_EVERY_SECONDS = 10.0


class Reporter:
    """Messages, and one progress bar per piece of work, or for all pieces after `expect`."""

    def __init__(self, *, quiet: bool = False, verbose: bool = False) -> None:
        """Create a reporter that prints to stderr.

        Args:
            quiet: Whether to print warnings only.
            verbose: Whether to print details.
        """
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
        """Remove the bar."""
        if self._bars:
            self._progress.stop()

    def mute(self) -> None:
        """Print nothing from now on, not even warnings; the main process prints."""
        self._console.quiet = True

    def say(self, message: str) -> None:
        """Print a line, except when quiet."""
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
        """Show the following pieces of work on one bar.

        Args:
            parts: Number of parts of all pieces; 0 gives each piece its own bar.
        """
        self._expected = parts
        self._before = self._total = 0
        self._progress.reset(self._task, total=parts, description="", visible=False)

    def begin(self, name: str, total: int) -> None:
        """Start a piece of work, which replaces the one before.

        Args:
            name: Name of the piece.
            total: Number of its parts.
        """
        if self._expected:
            self._before += self._total
        else:
            self._progress.reset(self._task)
        self._name, self._total, self._said_at = name, total, time.monotonic()
        self._show(name, 0)

    def skip(self, parts: int) -> None:
        """Count parts of an earlier run as done, instead of the piece of work just begun."""
        self._before, self._total = self._before + parts, 0

    def done(self, parts: int, total: int | None = None, note: str = "") -> None:
        """Report the number of finished parts.

        Args:
            parts: Number of finished parts of the current piece.
            total: Number of its parts, if that changed; not shown while it is 0.
            note: Text to show behind the numbers.
        """
        self._total = total or self._total
        total_text = f" of {self._total}" if self._total else ""
        text = f"{self._name}: {parts}{total_text}{note and f', {note}'}"
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
