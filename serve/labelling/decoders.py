"""Processes that read and prepare images, so that a file may kill a decoder and nothing else.

`concurrent.futures.ProcessPoolExecutor` decoded as many images per second and started as fast, but
does not fit: with `spawn` it imports the caller's main script again (a script without a main guard
failed), its workers outlived a killed parent, and one dead worker breaks every batch of the pool.
"""

import json
import math
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from types import TracebackType
from typing import Self

import numpy as np

from scda.models.errors import DataError, ImageError
from scda.models.limits import LIMITS, ImageLimits
from scda.models.preprocess import Pixels, Preprocessing
from scda.serve.imaging import Prepared
from scda.serve.labelling import decode_worker

Decode = Callable[[Sequence[Path | str]], list[Prepared]]


@contextmanager
def decoders(
    preprocessing: Preprocessing, count: int, limits: ImageLimits = LIMITS
) -> Iterator[Decode]:
    """Give a thread-safe function that prepares files, in order.

    Args:
        preprocessing: Preprocessing of the bundle.
        count: Number of processes; 0 prepares the files in the calling thread.
        limits: The largest image that is read.
    """
    if not count:
        yield partial(decode_worker.prepare_files, preprocessing, limits=limits)
        return
    idle: SimpleQueue[Decoder] = SimpleQueue()

    def decode(paths: Sequence[Path | str]) -> list[Prepared]:
        decoder = idle.get()
        try:
            return decoder.prepare(paths)
        finally:
            idle.put(decoder)

    with ExitStack() as stack:
        for _ in range(count):
            idle.put(stack.enter_context(Decoder(preprocessing, limits)))
        yield decode


class Decoder:
    """One decoding process, replaced when a file kills it."""

    def __init__(self, preprocessing: Preprocessing, limits: ImageLimits = LIMITS) -> None:
        """Start the process; its first answer takes a quarter of a second.

        Raises:
            DataError: If the process cannot be started.
        """
        self._preprocessing, self._limits = preprocessing, limits
        self._process = _started(preprocessing, limits)

    def __enter__(self) -> Self:
        """Return the decoder."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End the process."""
        _end(self._process)

    def prepare(self, files: Sequence[Path | str]) -> list[Prepared]:
        """Return the pixels of each file or URI, in order, or its error.

        Raises:
            DataError: If the process cannot be started.
        """
        try:
            return self._ask(files)
        except (OSError, EOFError, ValueError):  # ValueError: an earlier restart failed
            code = self._restart()
        if len(files) == 1:
            return [ImageError("cannot_decode", f"the file ended the decoding process ({code})")]
        return [prepared for file in files for prepared in self.prepare([file])]

    def _ask(self, files: Sequence[Path | str]) -> list[Prepared]:
        to, answers = self._process.stdin, self._process.stdout
        assert to
        assert answers
        to.write(json.dumps([str(file) for file in files]).encode() + b"\n")
        to.flush()
        line = answers.readline()
        if not line.endswith(b"\n"):
            raise EOFError
        return [ImageError(*bad) if bad else self._pixels() for bad in json.loads(line)]

    def _pixels(self) -> Pixels:
        assert self._process.stdout
        shape = self._preprocessing.shape
        data = self._process.stdout.read(math.prod(shape))
        if len(data) < math.prod(shape):
            raise EOFError
        return np.frombuffer(data, np.uint8).reshape(shape)

    def _restart(self) -> int:
        """Replace a process that died; return its exit code."""
        code = _end(self._process)
        self._process = _started(self._preprocessing, self._limits)
        try:
            self._ask([])
        except (OSError, EOFError):
            raise _cannot_start(f"exit code {_end(self._process)}") from None
        return code


def _started(preprocessing: Preprocessing, limits: ImageLimits) -> subprocess.Popen[bytes]:
    # -P: a file in the current folder must not shadow a module.
    words = [sys.executable, "-P", "-m", decode_worker.__name__]
    try:
        return subprocess.Popen(
            [*words, json.dumps(preprocessing.to_json()), json.dumps(vars(limits))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            process_group=0,  # Ctrl-C reaches only the parent, which ends this process
        )
    except OSError as error:  # such as a lack of memory
        raise _cannot_start(error.strerror) from None


def _cannot_start(why: str | None) -> DataError:
    return DataError(
        f"a decoding process cannot start ({why}); use --workers 0 to decode in this process"
    )


def _end(process: subprocess.Popen[bytes]) -> int:
    """End a process if it still runs, and return its exit code."""
    process.kill()
    process.communicate()
    return process.returncode
