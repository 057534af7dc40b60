"""Exit codes of the commands, and the one line on standard error if a command fails."""

import os
import signal
import sys
import traceback
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from enum import IntEnum
from functools import partial
from itertools import pairwise
from typing import Any, NoReturn

import typer
from typer.exceptions import TyperException

from scda.adapt.cli.streams import (
    OutputClosed,
    flush_output,
    settle_streams,
    silence_libraries,
)
from scda.adapt.runtime.signals import Terminated, ended_within
from scda.models.errors import DataError, GateError, ScdaError, UsageError

_GRACE_SECONDS = 3.0  # from SIGTERM to the end of the process
_RESUMABLE = {"train", "label"}
_OUTPUTS = {"--out", "--embeddings", "--sort-into"}


class ExitCode(IntEnum):
    """Exit codes of `scda-adapt`."""

    SUCCESS = 0
    INTERNAL_ERROR = 1
    USAGE = UsageError.exit_code  # wrong option, path or setting
    SOME_INPUTS_FAILED = 3  # finished, but some files could not be used
    DATA = DataError.exit_code  # unusable images
    GATE = GateError.exit_code  # failed check of a bundle or of training
    INTERRUPTED = 128 + signal.SIGINT
    OUTPUT_CLOSED = 128 + 13  # SIGPIPE, which Windows lacks: the reader has gone, as `head` does
    TERMINATED = 128 + signal.SIGTERM


def run(app: typer.Typer) -> NoReturn:
    """Run a command and exit; errors that a user can cause are printed as one line."""
    ours = sys.stdout in (None, sys.__stdout__)  # else a program calls this, with its own streams
    if ours:
        settle_streams()
        if "--verbose" not in sys.argv:
            silence_libraries()
    # The processes of torchrun stop after the same step, for which it allows them more time.
    shared = "LOCAL_RANK" in os.environ
    with nullcontext() if shared else ended_within(_GRACE_SECONDS, _say_terminated):
        try:
            _hear_signals()
            code = _exit_code(lambda: _flushed(app))
            if ours:
                _stop_hearing()
        except (KeyboardInterrupt, Terminated) as error:  # while another error was being told
            code = _exit_code(partial(_raise, error))
            if ours:
                _stop_hearing()
        if code == ExitCode.TERMINATED and ours and not shared:
            # All is cleaned up. To take down what libraries loaded lasts seconds on a busy
            # machine, while no other thread can run.
            os._exit(code)
    sys.exit(code)


def _hear_signals() -> None:
    """Let SIGTERM and Ctrl-C be exceptions; before and after, they end the process at once."""
    signal.signal(signal.SIGTERM, _terminate)
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:  # as `scda.adapt.__main__` left it
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _stop_hearing() -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)


def _raise(error: BaseException) -> NoReturn:
    raise error


def _flushed(app: typer.Typer) -> int:
    """Run a command; its output is written, or its failure to be written is an error."""
    try:
        code: int = app(standalone_mode=False) or ExitCode.SUCCESS
    except BaseException:
        with suppress(OutputClosed, OSError):  # the first error counts
            flush_output()
        raise
    flush_output()
    return code


def _exit_code(command: Callable[[], int]) -> int:
    try:
        code = command()
    except ScdaError as error:
        return _fail(error.exit_code, str(error))
    except TyperException as error:
        message = error.format_message()  # empty if the help was shown instead
        return _fail(ExitCode.USAGE, message) if message else ExitCode.USAGE
    except (KeyboardInterrupt, typer.Abort):
        code = ExitCode.INTERRUPTED
    except Terminated:
        return _say_terminated()
    except OutputClosed:
        return ExitCode.OUTPUT_CLOSED
    except OSError as error:  # a full disk, a read-only folder
        return _fail(ExitCode.USAGE, f"{error.filename or 'output'}: {error.strerror or error}")
    except Exception as error:  # only an internal error gets this far
        stop = _signal_behind(error)
        return _exit_code(partial(_raise, stop)) if stop else _crash(error)
    # Typer, too, answers Ctrl-C with this code.
    return _fail(code, f"interrupted{_advice()}") if code == ExitCode.INTERRUPTED else code


def _signal_behind(error: BaseException) -> BaseException | None:
    """Return what a signal raised: a library stopped while it loads may turn it into its own."""
    before = error.__cause__ or error.__context__
    if before is None or isinstance(before, KeyboardInterrupt | Terminated):
        return before
    return _signal_behind(before)


def _terminate(number: int, frame: Any) -> None:
    for further in (signal.SIGTERM, signal.SIGINT):  # must not interrupt the cleaning up
        signal.signal(further, signal.SIG_IGN)
    raise Terminated


def _say_terminated() -> int:
    return _fail(ExitCode.TERMINATED, f"terminated{_advice()}")


def _advice() -> str:
    return "; rerun with --resume to continue" if _is_resumable(sys.argv[1:]) else ""


def _is_resumable(words: Sequence[str]) -> bool:
    """Return whether a command has an output to resume with; standard output is none."""
    given = [word.split("=", 1) for word in words if "=" in word]
    outs = {value for option, value in [*pairwise(words), *given] if option in _OUTPUTS}
    return bool(_RESUMABLE & set(words[:1])) and outs != {"-"} and "--dry-run" not in words


def _fail(code: int, message: str) -> int:
    print(f"scda-adapt: {' '.join(message.split())}", file=sys.stderr)
    return code


def _crash(error: Exception) -> int:
    if "--verbose" in sys.argv:
        traceback.print_exception(error)
    advice = "rerun with --verbose for a traceback"
    return _fail(ExitCode.INTERNAL_ERROR, f"internal error: {error!r}; {advice}")
