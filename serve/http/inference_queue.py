"""Where requests wait for the model: no more than a fixed number, no longer than a fixed time."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from scda.models.cpus import usable_cpus
from scda.models.errors import ImageError
from scda.models.images import read_image
from scda.models.names import Names
from scda.models.predictor import Prediction, Predictor
from scda.models.preprocess import Pixels
from scda.serve.http.batcher import Batcher
from scda.serve.http.errors import RequestError
from scda.serve.http.metrics import Metrics
from scda.serve.http.renaming import NamesWatch
from scda.serve.http.settings import Settings
from scda.serve.imaging import Answer, Prepared, prepare

logger = logging.getLogger(__name__)
# On a CPU a larger batch is hardly faster, and its images wait for each other.
_MAX_BATCH = {"cpu": 4, "cuda": 32}


@dataclass(frozen=True)
class Seen:
    """What the model saw in one image."""

    prediction: Prediction
    features: NDArray[np.float32]  # (D,)
    names: Names  # that the prediction has; others may be in force by now


class Desk:
    """Decodes on several threads, and passes what can be used to the batcher."""

    def __init__(self, predictor: Predictor, settings: Settings, metrics: Metrics) -> None:
        """Open with nobody waiting."""
        self.predictor, self.settings, self.names = predictor, settings, NamesWatch(predictor)
        self._metrics = metrics
        threads = settings.threads or usable_cpus()
        self._decoders = ThreadPoolExecutor(threads, "scda-decode")
        self._batcher = Batcher(
            self._see,
            max_batch=settings.max_batch or _MAX_BATCH[predictor.session.provider],
            max_wait_seconds=settings.max_wait_ms / 1000,
            lanes=threads if predictor.session.provider == "cpu" else 1,
            on_wait=metrics.wait.labels("model").observe,
        )
        self._taken = 0

    @asynccontextmanager
    async def place(self) -> AsyncIterator[None]:
        """Hold a place for one request, from before its body is read until its answer is known.

        Raises:
            RequestError: With code `overloaded` where no place is free, or `timeout`.
        """
        if self._taken >= self.settings.queue:
            raise RequestError("overloaded", f"{self._taken} requests are waiting; try again later")
        self._taken += 1
        try:
            async with asyncio.timeout(self.settings.timeout_seconds):
                yield
        except TimeoutError:
            limit = self.settings.timeout_seconds
            raise RequestError("timeout", f"no answer within {limit:g} seconds") from None
        finally:
            self._taken -= 1

    async def answer(self, images: Sequence[bytes]) -> list[Answer]:
        """Return one answer per image file, in order, by the names in force now."""
        seen = await self.look(images)
        return [one if isinstance(one, ImageError) else one.prediction for one in seen]

    async def look(self, images: Sequence[bytes]) -> list[Seen | ImageError]:
        """Return what the model saw in each image file, in order, by the names in force now."""
        self.names.refresh()
        # Of a request that runs out of time, what has not begun is cancelled.
        return list(await asyncio.gather(*map(self._look_at, images)))

    async def _look_at(self, data: bytes) -> Seen | ImageError:
        loop = asyncio.get_running_loop()
        prepared = await loop.run_in_executor(self._decoders, self._prepare, data, time.monotonic())
        if isinstance(prepared, ImageError):
            return prepared
        try:
            seen = await self._batcher.answer(prepared)
        except Exception as error:  # of this image alone: the batcher tried it by itself
            logger.error("the model failed on an image", exc_info=error)
            return ImageError("internal", "a bug in the server: the model failed on this image")
        self._metrics.count_image(seen.prediction)
        return seen

    def _prepare(self, data: bytes, since: float) -> Prepared:
        self._metrics.wait.labels("decode").observe(time.monotonic() - since)
        read = partial(read_image, data, max_pixels=self.settings.max_pixels)
        with self._metrics.decode.time():
            return prepare(self.predictor.prepare, read)

    def _see(self, pixels: Sequence[Pixels]) -> list[Seen]:
        self._metrics.batch.observe(len(pixels))
        with self._metrics.inference.time():
            outputs = self.predictor.run(pixels)
        naming = self.predictor.active_names
        predictions = self.predictor.describe(outputs, naming=naming)
        return [
            Seen(prediction, features, naming.names)
            for prediction, features in zip(predictions, outputs.features, strict=True)
        ]
