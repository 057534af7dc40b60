"""How a command ends: its exit code, and one line on standard error where it failed."""

import signal
import sys
import traceback
from typing import Any, NoReturn

import typer
from typer.exceptions import TyperException

from scda.adapt.runtime.signals import Terminated
from scda.models.errors import ScdaError, UsageError

_INTERRUPTED = 128 + signal.SIGINT
_AGAIN = "--resume goes on with the same command (train, label)"


def run(app: typer.Typer) -> NoReturn:
    """Run a command; every error a user can cause is one line and an exit code."""
    _heed_sigterm()
    try:
        code = app(standalone_mode=False) or 0
        if code == _INTERRUPTED:  # typer's answer to Ctrl-C
            raise KeyboardInterrupt
    except ScdaError as error:
        code = _fail(error.exit_code, str(error))
    except TyperException as error:
        said = error.format_message()  # nothing where the help was shown instead
        code = _fail(UsageError.exit_code, said) if said else UsageError.exit_code
    except (KeyboardInterrupt, typer.Abort):
        code = _fail(_INTERRUPTED, f"interrupted; {_AGAIN}")
    except Terminated:
        code = _fail(128 + signal.SIGTERM, f"stopped; {_AGAIN}")
    except OSError as error:  # a full disk, a read-only folder
        code = _fail(UsageError.exit_code, f"{error.filename or 'output'}: {error.strerror}")
    except Exception as error:  # the outermost shell: whatever arrives here is a bug
        code = _crash(error)
    sys.exit(code)


def _heed_sigterm() -> None:
    def stop(number: int, frame: Any) -> None:
        raise Terminated

    signal.signal(signal.SIGTERM, stop)


def _fail(code: int, message: str) -> int:
    print(f"scda-adapt: {' '.join(message.split())}", file=sys.stderr)
    return code


def _crash(error: Exception) -> int:
    if "--verbose" in sys.argv:
        traceback.print_exception(error)
    return _fail(1, f"a bug: {error!r}; --verbose shows where")
