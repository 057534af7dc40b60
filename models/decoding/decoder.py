"""One decoding process, so that a file may kill a decoder and nothing else.

`concurrent.futures.ProcessPoolExecutor` decoded as many images per second and started as fast, but
does not fit: with `spawn` it imports the caller's main script again (a script without a main guard
failed), its workers outlived a killed parent, and one dead worker breaks every batch of the pool.
"""

import json
import math
import os
import select
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np

from scda.models.decoding import worker
from scda.models.decoding.cheap import COSTLY
from scda.models.decoding.content import File
from scda.models.decoding.forms import Form, form_text
from scda.models.decoding.limits import ProcessLimits
from scda.models.errors import DataError, ImageError
from scda.models.limits import LIMITS, ImageLimits
from scda.models.preprocess import Pixels, Prepared

_START_SECONDS = 60.0  # a process starts in half a second on an idle machine
# One heap and one thread: of what a process has at its start, only the memory limit counts more.
_SMALL = {"MALLOC_ARENA_MAX": "1", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


@dataclass(frozen=True, kw_only=True)
class Job:
    """What a decoding process is for."""

    limits: ImageLimits = LIMITS  # the largest image that is read
    process: ProcessLimits | None = None  # None leaves out costly images

    def to_json(self) -> str:
        """Return the argument of the process."""
        return json.dumps(
            {
                "limits": vars(self.limits),
                "process": asdict(self.process) if self.process else None,
            }
        )


class Decoder:
    """One decoding process, replaced when a file kills it."""

    def __init__(self, job: Job) -> None:
        """Start the process; its first answer takes a quarter of a second.

        Raises:
            DataError: If the process cannot be started.
        """
        self._job, self._is_ready = job, False
        self._process = _started(job)

    def close(self) -> None:
        """End the process."""
        _end(self._process)

    def prepare(self, form: Form, files: Sequence[File]) -> list[Prepared | None]:
        """Return what a form makes of each file, in order, or its error; None for a costly image.

        Raises:
            DataError: If the process cannot be started.
        """
        try:
            if not self._is_ready:  # the time of the first file begins when the process has started
                self._ask(form, [])
                self._is_ready = True
            return self._ask(form, files)
        except TimeoutError:
            limit = self._job.process.patience if self._job.process else math.inf
            self._restart(form)
            why = f"decoding did not end within {limit:g} seconds"
        except (OSError, EOFError, ValueError):  # ValueError: an earlier restart failed
            why = self._why_ended(self._restart(form))
        if len(files) == 1:
            return [ImageError("cannot_decode", why)]
        return [prepared for file in files for prepared in self.prepare(form, [file])]

    def _ask(self, form: Form, files: Sequence[File]) -> list[Prepared | None]:
        to, answers = self._process.stdin, self._process.stdout
        assert to
        assert answers
        given = [len(file) if isinstance(file, bytes) else str(file) for file in files]
        to.write(json.dumps([form_text(form), given]).encode() + b"\n")
        for file in files:
            if isinstance(file, bytes):
                to.write(file)
        to.flush()
        self._wait(len(files))
        line = answers.readline()
        if not line.endswith(b"\n"):
            raise EOFError
        return [self._one(*answer) for answer in json.loads(line)]

    def _wait(self, files: int) -> None:
        """Wait for an answer.

        Raises:
            TimeoutError: If there is none in time.
        """
        assert self._process.stdout
        if self._job.process and hasattr(select, "poll"):  # not on Windows
            waiting = select.poll()
            waiting.register(self._process.stdout, select.POLLIN)
            patience = files * self._job.process.patience if files else _START_SECONDS
            if not waiting.poll(1000 * patience):
                raise TimeoutError

    def _one(self, first: int | str, second: int | str) -> Prepared | None:
        if isinstance(first, int) and isinstance(second, int):
            return self._pixels((first, second, 3))
        return None if first == COSTLY else ImageError(str(first), str(second))

    def _pixels(self, shape: tuple[int, int, int]) -> Pixels:
        assert self._process.stdout
        data = self._process.stdout.read(math.prod(shape))
        if len(data) < math.prod(shape):
            raise EOFError
        return np.frombuffer(data, np.uint8).reshape(shape)

    def _why_ended(self, code: int) -> str:
        process = self._job.process
        if process and code == -getattr(signal, "SIGXCPU", 0):
            return f"decoding needs more than {process.seconds} seconds of processor time"
        return f"the file ended the decoding process ({code})"

    def _restart(self, form: Form) -> int:
        """Replace a process that died; return its exit code."""
        code = _end(self._process)
        self._process = _started(self._job)
        try:
            self._ask(form, [])
        except (OSError, EOFError):
            raise _cannot_start(self._job, f"exit code {_end(self._process)}") from None
        return code


def _started(job: Job) -> subprocess.Popen[bytes]:
    # -P: a file in the current folder must not shadow a module.
    words = [sys.executable, "-P", "-m", worker.__name__, job.to_json()]
    try:
        return subprocess.Popen(
            words,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **_SMALL},
            process_group=0,  # Ctrl-C reaches only the parent, which ends this process
        )
    except OSError as error:  # such as a lack of memory
        raise _cannot_start(job, error.strerror) from None


def _cannot_start(job: Job, why: str | None) -> DataError:
    # Costly images are decoded in no other process.
    advice = "check the memory" if job.process else "use --workers 0 to decode in this process"
    return DataError(f"a decoding process cannot start ({why}); {advice}")


def _end(process: subprocess.Popen[bytes]) -> int:
    """End a process if it still runs, and return its exit code."""
    process.kill()
    process.communicate()
    return process.returncode
