"""The queue in front of the model: a limited number of requests, each for a limited time."""

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

from scda.models.cpus import num_workers, usable_cpus
from scda.models.errors import ImageError
from scda.models.images import read_image
from scda.models.names import Names
from scda.models.predictor import Prediction, Predictor
from scda.models.preprocess import Pixels
from scda.serve.http.batcher import Batcher
from scda.serve.http.errors import RequestError
from scda.serve.http.metrics import Metrics
from scda.serve.http.names_watcher import NamesWatcher
from scda.serve.http.settings import Settings
from scda.serve.imaging import Answer, Prepared, prepare

logger = logging.getLogger(__name__)
# On a CPU a larger batch is hardly faster per image, and its images wait for each other.
_MAX_BATCH = {"cpu": 4, "cuda": 32}


@dataclass(frozen=True)
class Inference:
    """The result of the model for one image."""

    prediction: Prediction
    features: NDArray[np.float32]  # (D,)
    names: Names  # the names that the prediction uses; newer ones may have been loaded since


class InferenceQueue:
    """Decodes images on several threads and passes them to the batcher.

    Attributes:
        predictor: The loaded bundle.
        settings: The limits of the server.
        names: Reloads names.json when it changes.
    """

    def __init__(self, predictor: Predictor, settings: Settings, metrics: Metrics) -> None:
        """Create an empty queue."""
        self.predictor, self.settings, self.names = predictor, settings, NamesWatcher(predictor)
        self._metrics = metrics
        threads = num_workers(settings.threads, settings.queue) or usable_cpus()
        self._decoders = ThreadPoolExecutor(threads, "scda-decode")
        self._batcher = Batcher(
            self._run_batch,
            max_batch=settings.max_batch or _MAX_BATCH[predictor.session.provider],
            max_wait_seconds=settings.max_wait_ms / 1000,
            lanes=threads if predictor.session.provider == "cpu" else 1,
            on_wait=metrics.wait.labels("model").observe,
        )
        self._in_flight = 0

    @asynccontextmanager
    async def slot(self) -> AsyncIterator[None]:
        """Hold a slot for one request, from before its body is read until its answer is known.

        Raises:
            RequestError: With code `overloaded` if no slot is free, or `timeout`.
        """
        if self._in_flight >= self.settings.queue:
            message = f"the queue is full ({self._in_flight} requests); try again later"
            raise RequestError("overloaded", message)
        self._in_flight += 1
        try:
            async with asyncio.timeout(self.settings.timeout_seconds):
                yield
        except TimeoutError:
            limit = self.settings.timeout_seconds
            raise RequestError("timeout", f"no answer within {limit:g} seconds") from None
        finally:
            self._in_flight -= 1

    async def predict(self, images: Sequence[bytes]) -> list[Answer]:
        """Return the prediction or the error of each image file, in order, with current names."""
        results = await self.infer(images)
        return [one if isinstance(one, ImageError) else one.prediction for one in results]

    async def infer(self, images: Sequence[bytes]) -> list[Inference | ImageError]:
        """Return the inference or the error of each image file, in order, with current names."""
        self.names.refresh()
        # When a request times out, its images that have not started yet are cancelled.
        return list(await asyncio.gather(*map(self._infer_one, images)))

    async def _infer_one(self, data: bytes) -> Inference | ImageError:
        loop = asyncio.get_running_loop()
        prepared = await loop.run_in_executor(self._decoders, self._prepare, data, time.monotonic())
        if isinstance(prepared, ImageError):
            return prepared
        try:
            inference = await self._batcher.answer(prepared)
        except Exception as error:  # this image alone: the batcher has retried it by itself
            logger.error("the model failed on an image", exc_info=error)
            return ImageError("internal", "internal error: the model failed on this image")
        self._metrics.count_image(inference.prediction)
        return inference

    def _prepare(self, data: bytes, since: float) -> Prepared:
        self._metrics.wait.labels("decode").observe(time.monotonic() - since)
        read = partial(read_image, data, max_pixels=self.settings.max_pixels)
        with self._metrics.decode.time():
            return prepare(self.predictor.prepare, read)

    def _run_batch(self, pixels: Sequence[Pixels]) -> list[Inference]:
        self._metrics.batch.observe(len(pixels))
        with self._metrics.inference.time():
            outputs = self.predictor.run(pixels)
        naming = self.predictor.active_names
        predictions = self.predictor.describe(outputs, naming=naming)
        return [
            Inference(prediction, features, naming.names)
            for prediction, features in zip(predictions, outputs.features, strict=True)
        ]
