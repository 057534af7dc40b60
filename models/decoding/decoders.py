"""Several decoding processes: some for cheap images, and others, within limits, for costly ones."""

import os
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from queue import LifoQueue

from scda.models.cpus import usable_cpus
from scda.models.decoding.cheap import prepare_cheap
from scda.models.decoding.content import File, read
from scda.models.decoding.decoder import Decoder, Job
from scda.models.decoding.forms import Form
from scda.models.decoding.limits import ProcessLimits
from scda.models.errors import ImageError
from scda.models.limits import LIMITS, ImageLimits
from scda.models.preprocess import Prepared

Decode = Callable[[Sequence[File]], list[Prepared]]


@contextmanager
def decoders(form: Form, count: int, limits: ImageLimits = LIMITS) -> Iterator[Decode]:
    """Give a thread-safe function that prepares files, in order.

    Args:
        form: What is made of each file, such as the preprocessing of a bundle.
        count: Number of processes for cheap images; 0 prepares these in the calling thread.
        limits: The largest image that is read.
    """
    cheap = Lane(Job(limits=limits), count) if count else None
    prepare = cheap.prepare if cheap else partial(prepare_cheap, limits=limits)
    costly = CostlyImages(limits, most=count or usable_cpus())
    try:
        if cheap:
            cheap.start()
        yield lambda files: [
            costly.prepare(form, file) if found is None else found
            for file, found in zip(files, prepare(form, files), strict=True)
        ]
    finally:
        costly.close()
        if cheap:
            cheap.close()


class Lane:
    """A number of equal processes, each started when it is needed; threads may share them.

    Attributes:
        close: Ends all processes.
    """

    def __init__(self, job: Job, count: int) -> None:
        """Create a lane of `count` processes, none of which is started."""
        self._job, self._count = job, count
        self._started: list[Decoder] = []
        # Also where nobody closes the lane, such as at the end of a server.
        self.close = weakref.finalize(self, _close, os.getpid(), self._started)
        self._idle: LifoQueue[Decoder | None] = LifoQueue()  # None: still to be started
        for _ in range(count):
            self._idle.put(None)

    def prepare(self, form: Form, files: Sequence[File]) -> list[Prepared | None]:
        """Return what `Decoder.prepare` returns, from the first process that is idle.

        Raises:
            DataError: If the process cannot be started.
        """
        decoder = self._idle.get()
        try:
            decoder = decoder or self._new()
            return decoder.prepare(form, files)
        finally:
            self._idle.put(decoder)

    def start(self) -> None:
        """Start all processes now, so that they load while others work.

        Raises:
            DataError: If one cannot be started.
        """
        for _ in range(self._count):
            self._idle.get()
        for _ in range(self._count):
            self._idle.put(self._new())

    def _new(self) -> Decoder:
        decoder = Decoder(self._job)
        self._started.append(decoder)
        return decoder


def _close(owner: int, decoders: Sequence[Decoder]) -> None:
    if os.getpid() == owner:  # not a fork, which ends earlier
        for decoder in decoders:
            decoder.close()


class CostlyImages:
    """Prepares images in processes whose memory and time are limited.

    Attributes:
        at_once: Number of images that are prepared at the same time.
    """

    def __init__(
        self,
        limits: ImageLimits,
        *,
        most: int,
        process: ProcessLimits | None = None,
    ) -> None:
        """Start no process: the first costly image does.

        Args:
            limits: The largest image that is read.
            most: Largest number of processes; there are fewer where the memory is small.
            process: Limits of each process; None takes those that the largest image needs.
        """
        process = process or ProcessLimits.for_images(limits)
        self._limits, self.at_once = limits, process.at_once(most)
        self._lane = Lane(Job(limits=limits, process=process), self.at_once)

    def prepare(self, form: Form, file: File) -> Prepared:
        """Return what a form makes of a file, or its error; wait until a process is idle.

        Raises:
            DataError: If the process cannot be started.
        """
        try:
            (prepared,) = self._lane.prepare(form, [read(file, self._limits)])
        except ImageError as error:
            return error
        assert prepared is not None
        return prepared

    def close(self) -> None:
        """End all processes."""
        self._lane.close()
