"""One piece of work in a process of its own, beside the run: `python -m scda.adapt.runtime.beside`.

The process gets a function and its arguments on standard input, and answers on standard output. It
ends with its input, and so with its parent, however that one ends. `multiprocessing` does not fit:
with `spawn` it imports the caller's main script again, and its processes outlive a killed parent.
"""

import os
import pickle
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, TypeVar

from scda.models.errors import GateError

T = TypeVar("T")
_ADVICE = "free some memory, and rerun with --resume to continue"
_SIZE = 8  # bytes of the length that comes first
_STDIN, _STDOUT, _STDERR = 0, 1, 2


@contextmanager
def beside(function: Callable[..., T], *arguments: object) -> Iterator[Callable[[], T]]:
    """Call a function in a process of its own, which ends with the block.

    Args:
        function: A function that a module defines.
        arguments: What it is called with; like its result, they are copied.

    Yields:
        A function that waits for the result, once; it raises what the other one raised.

    Raises:
        GateError: If the process cannot be started, or ends without an answer.
    """
    process = _started()
    try:
        _give(process, pickle.dumps((function, arguments)))
        yield partial(_result, process)
    finally:
        process.kill()
        process.communicate()


def _started() -> subprocess.Popen[bytes]:
    # -P: a file in the current folder must not shadow a module.
    words = [sys.executable, "-W", "ignore", "-P", "-m", __name__]
    try:
        return subprocess.Popen(
            words,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            process_group=0,  # Ctrl-C reaches only the parent, which ends this process
        )
    except OSError as error:  # such as a lack of memory
        raise GateError(f"a second process cannot start ({error.strerror}); {_ADVICE}") from None


def _give(process: subprocess.Popen[bytes], given: bytes) -> None:
    assert process.stdin
    with suppress(BrokenPipeError):  # of a process that ended; that is told where it is waited for
        process.stdin.write(len(given).to_bytes(_SIZE, "big"))
        process.stdin.write(given)
        process.stdin.flush()


def _result(process: subprocess.Popen[bytes]) -> Any:
    """Return what the function returned.

    Raises:
        GateError: If the process ended without an answer.
    """
    assert process.stdout
    answer = process.stdout.read()
    if not answer:
        code = process.wait()
        advice = f"; {_ADVICE}" if code < 0 else ""
        raise GateError(f"a second process ended with exit code {code}{advice}")
    result, error = pickle.loads(answer)
    if error:
        raise error
    return result


def _end_with_parent() -> None:
    while os.read(_STDIN, 1):
        pass
    os._exit(1)


def _main() -> None:
    answers = os.fdopen(os.dup(_STDOUT), "wb")
    os.dup2(_STDERR, _STDOUT)  # what a library prints is no answer
    # Read before anything is imported, so that the parent does not wait for it.
    size = int.from_bytes(sys.stdin.buffer.read(_SIZE), "big")
    given = sys.stdin.buffer.read(size)
    if len(given) < max(1, size):
        return  # the parent has ended
    threading.Thread(target=_end_with_parent, daemon=True).start()
    function, arguments = pickle.loads(given)
    del given
    try:
        answer = pickle.dumps((function(*arguments), None))
    except Exception as raised:
        answer = _told(raised)
    with answers:
        answers.write(answer)


def _told(raised: Exception) -> bytes:
    raised.add_note(traceback.format_exc())
    try:
        return pickle.dumps((None, raised))
    except Exception:  # some cannot be copied
        return pickle.dumps((None, RuntimeError(repr(raised))))


if __name__ == "__main__":
    _main()
