"""The standard streams of a command, usable whatever the shell hands over."""

import io
import logging
import os
import select
import sys
import warnings
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

_STDIN, _STDOUT, _STDERR = 0, 1, 2


class OutputClosed(Exception):  # noqa: N818 - no error: the reader has seen enough
    """The reader of standard output has gone, as `head` does."""


class _Stream(io.FileIO):
    """Standard output or standard error, without buffer."""

    def write(self, data: "ReadableBuffer", /) -> int:
        """Write bytes; those that cannot be written to standard error are dropped.

        Raises:
            OutputClosed: If nobody reads standard output any more.
            OSError: With the name of standard output, if it cannot be written.
        """
        try:
            written: int | None = None
            while (written := super().write(data)) is None:  # another program made it non-blocking
                select.select([], [self], [])
        except OSError as error:
            if self.fileno() == _STDERR:
                return memoryview(data).nbytes
            if isinstance(error, BrokenPipeError):
                raise OutputClosed from None
            raise OSError(error.errno, error.strerror, "standard output") from None
        return written


def settle_streams() -> None:
    """Open closed streams to nothing, and let text streams hold any text, with escapes.

    Without that, the first file that a command opens would take the number of a closed stream, and
    hold its messages.
    """
    for number in (_STDIN, _STDOUT, _STDERR):
        try:
            os.fstat(number)
        except OSError:
            opened = os.open(os.devnull, os.O_RDWR)
            if opened != number:
                os.dup2(opened, number)
                os.close(opened)
            os.set_inheritable(number, True)
    if sys.stdin is None:
        sys.stdin = io.TextIOWrapper(io.BufferedReader(io.FileIO(_STDIN, closefd=False)))
    sys.stdout = _text(_STDOUT, sys.stdout)
    sys.stderr = _text(_STDERR, sys.stderr)


def _text(number: int, before: TextIO | None) -> TextIO:
    buffer = io.BufferedWriter(_Stream(number, "wb", closefd=False))
    by_line = number == _STDERR or buffer.isatty()
    encoding = before.encoding if before else "utf-8"
    return io.TextIOWrapper(buffer, encoding, "backslashreplace", line_buffering=by_line)


def flush_output() -> None:
    """Write what is left for standard output, or discard it.

    Raises:
        OutputClosed: As `_Stream.write`.
        OSError: As `_Stream.write`.
    """
    try:
        sys.stdout.flush()
    except (OutputClosed, OSError):
        # The end of the interpreter would try again, and fail with a code of its own.
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, _STDOUT)
        os.close(nothing)
        raise


def silence_libraries() -> None:
    """Hide the warnings of libraries; those of this package are shown."""
    warnings.simplefilter("ignore")
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # read when torch is imported
    if logging.lastResort:
        logging.getLogger("scda").addHandler(logging.lastResort)
    logging.getLogger().addHandler(logging.NullHandler())
