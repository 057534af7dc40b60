"""Where requests wait for the model: no more than a fixed number, no longer than a fixed time."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial

import faiss

from scda.models.cpus import usable_cpus
from scda.models.images import read_image
from scda.models.predictor import Predictor
from scda.serve.answer import Answer, Prepared, answer, prepare
from scda.serve.http_errors import RequestError
from scda.serve.settings import Settings


class Desk:
    """Decodes on several threads and runs the model on one, which uses all CPUs by itself."""

    def __init__(self, predictor: Predictor, settings: Settings) -> None:
        """Open with nobody waiting."""
        self._predictor, self._settings = predictor, settings
        self._decoders = ThreadPoolExecutor(settings.threads or usable_cpus(), "scda-decode")
        # A search among so few centroids is over before a second thread has woken up.
        self._model = ThreadPoolExecutor(
            1, "scda-model", initializer=partial(faiss.omp_set_num_threads, 1)
        )
        self._taken = 0

    @asynccontextmanager
    async def place(self) -> AsyncIterator[None]:
        """Hold a place for one request, from before its body is read until its answer is known.

        Raises:
            RequestError: With code `overloaded` where no place is free, or `timeout`.
        """
        if self._taken >= self._settings.queue:
            raise RequestError("overloaded", f"{self._taken} requests are waiting; try again later")
        self._taken += 1
        try:
            async with asyncio.timeout(self._settings.timeout_seconds):
                yield
        except TimeoutError:
            limit = self._settings.timeout_seconds
            raise RequestError("timeout", f"no answer within {limit:g} seconds") from None
        finally:
            self._taken -= 1

    async def answer(self, images: Sequence[bytes]) -> list[Answer]:
        """Return one answer per image file, in order."""
        loop = asyncio.get_running_loop()
        # Of a request that runs out of time, what has not begun is cancelled.
        prepared = await asyncio.gather(
            *(loop.run_in_executor(self._decoders, self._prepare, data) for data in images)
        )
        return await loop.run_in_executor(self._model, answer, self._predictor, prepared)

    def _prepare(self, data: bytes) -> Prepared:
        read = partial(read_image, data, max_pixels=self._settings.max_pixels)
        return prepare(self._predictor, read)
