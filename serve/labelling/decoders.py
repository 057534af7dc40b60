"""Processes that read and prepare images, so that a file may kill a decoder and nothing else.

`concurrent.futures.ProcessPoolExecutor` decoded as many images per second and started as fast, but
does not fit: with `spawn` it imports the caller's main script again (a script without a main guard
failed), its workers outlived a killed parent, and one dead worker breaks every batch of the pool.
"""

import json
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
from scda.models.preprocess import Pixels, Preprocessing
from scda.serve.imaging import Prepared
from scda.serve.labelling import decode_worker

Decode = Callable[[Sequence[Path]], list[Prepared]]


@contextmanager
def decoders(preprocessing: Preprocessing, count: int) -> Iterator[Decode]:
    """Give a function that prepares files, in order; as many threads as wish may call it.

    Args:
        preprocessing: What is done to each image.
        count: Processes; with 0 the files are prepared in the thread that calls.
    """
    if not count:
        yield partial(decode_worker.prepare_files, preprocessing)
        return
    idle: SimpleQueue[Decoder] = SimpleQueue()

    def decode(paths: Sequence[Path]) -> list[Prepared]:
        decoder = idle.get()
        try:
            return decoder.prepare(paths)
        finally:
            idle.put(decoder)

    with ExitStack() as stack:
        for _ in range(count):
            idle.put(stack.enter_context(Decoder(preprocessing)))
        yield decode


class Decoder:
    """One such process; where a file kills it, there is a new one for the next file."""

    def __init__(self, preprocessing: Preprocessing) -> None:
        """Start it; its first answer takes a quarter of a second.

        Raises:
            DataError: If no process can be started.
        """
        self._preprocessing = preprocessing
        self._process = _started(preprocessing)

    def __enter__(self) -> Self:
        """Give itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End the process; it holds nothing that would be lost."""
        _end(self._process)

    def prepare(self, files: Sequence[Path | str]) -> list[Prepared]:
        """Return the pixels of each file or URI, in order, or why there are none.

        Raises:
            DataError: If no process can be started.
        """
        try:
            return self._ask(files)
        except (OSError, EOFError, ValueError):  # ValueError: it was ended, as none could start
            code = self._restart()
        if len(files) == 1:
            return [ImageError("cannot_decode", f"it ended the decoding process ({code})")]
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
        side = self._preprocessing.crop_px
        data = self._process.stdout.read(side * side * 3)
        if len(data) < side * side * 3:
            raise EOFError
        return np.frombuffer(data, np.uint8).reshape(side, side, 3)

    def _restart(self) -> int:
        """Put a new process in the place of one that died; return what that one ended with."""
        code = _end(self._process)
        self._process = _started(self._preprocessing)
        try:
            self._ask([])
        except (OSError, EOFError):
            raise _cannot_start(f"it ends with {_end(self._process)}") from None
        return code


def _started(preprocessing: Preprocessing) -> subprocess.Popen[bytes]:
    # -P: a file in the user's folder must not stand in for a module.
    words = [sys.executable, "-P", "-m", decode_worker.__name__]
    try:
        return subprocess.Popen(
            [*words, json.dumps(preprocessing.to_json())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            process_group=0,  # Ctrl-C is for the process that asks; it ends this one in order
        )
    except OSError as error:  # no memory or no more processes, say
        raise _cannot_start(error.strerror) from None


def _cannot_start(why: str | None) -> DataError:
    return DataError(f"a decoding process cannot start ({why}); --workers 0 decodes without one")


def _end(process: subprocess.Popen[bytes]) -> int:
    """End a process, if it has not ended, and return its exit code."""
    process.kill()
    process.communicate()
    return process.returncode
