"""Where requests wait for the model: no more than a fixed number, no longer than a fixed time."""

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial

from scda.models.cpus import usable_cpus
from scda.models.errors import ImageError
from scda.models.images import read_image
from scda.models.predictor import Predictor
from scda.serve.answer import Answer
from scda.serve.batcher import Batcher
from scda.serve.http_errors import RequestError
from scda.serve.prepared import Prepared, prepare
from scda.serve.settings import Settings

logger = logging.getLogger(__name__)


class Desk:
    """Decodes on several threads, and passes what can be used to the batcher."""

    def __init__(self, predictor: Predictor, settings: Settings) -> None:
        """Open with nobody waiting."""
        self._predictor, self._settings = predictor, settings
        self._decoders = ThreadPoolExecutor(settings.threads or usable_cpus(), "scda-decode")
        self._batcher = Batcher(
            predictor.predict,
            max_batch=settings.max_batch,
            max_wait_seconds=settings.max_wait_ms / 1000,
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
        # Of a request that runs out of time, what has not begun is cancelled.
        return list(await asyncio.gather(*map(self._answer_one, images)))

    async def _answer_one(self, data: bytes) -> Answer:
        loop = asyncio.get_running_loop()
        prepared = await loop.run_in_executor(self._decoders, self._prepare, data)
        if isinstance(prepared, ImageError):
            return prepared
        try:
            return await self._batcher.answer(prepared)
        except Exception as error:  # of this image alone: the batcher tried it by itself
            logger.error("the model failed on an image", exc_info=error)
            return ImageError("internal", "a bug in the server: the model failed on this image")

    def _prepare(self, data: bytes) -> Prepared:
        read = partial(read_image, data, max_pixels=self._settings.max_pixels)
        return prepare(self._predictor.prepare, read)
