"""The queue in front of the model: a limited number of requests, each for a limited time."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial

from scda.models.errors import ImageError
from scda.models.images import read_image
from scda.models.predictor import ActiveNames
from scda.serve.http.errors import RequestError
from scda.serve.http.metrics import Metrics
from scda.serve.http.served.model import Inference, ServedModel
from scda.serve.http.served.switch import ModelSwitch
from scda.serve.http.settings import Settings
from scda.serve.imaging import Answer, Prepared, prepare

logger = logging.getLogger(__name__)


class InferenceQueue:
    """Decodes images on several threads and passes them to the served model.

    Attributes:
        models: The model that is served.
        settings: The limits of the server.
    """

    def __init__(self, models: ModelSwitch, settings: Settings, metrics: Metrics) -> None:
        """Create an empty queue."""
        self.models, self.settings, self._metrics = models, settings, metrics
        self._decoders = ThreadPoolExecutor(settings.parallel, "scda-decode")
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
                with self._metrics.requests_in_progress.track_inprogress():
                    yield
        except TimeoutError:
            limit = self.settings.timeout_seconds
            raise RequestError("timeout", f"no answer within {limit:g} seconds") from None
        finally:
            self._in_flight -= 1

    async def predict(self, images: Sequence[bytes]) -> list[Answer]:
        """Return the prediction or the error of each image file, in order, all by one model."""
        with self.models.pinned() as model:
            results = await self.infer(model, images)
        return [one if isinstance(one, ImageError) else one.prediction for one in results]

    async def infer(
        self, model: ServedModel, images: Sequence[bytes]
    ) -> list[Inference | ImageError]:
        """Return the inference or the error of each image file, in order, under one set of names.

        Args:
            model: From `models.pinned`, held by the caller until the answer is complete.
            images: The bytes of the files.
        """
        model.watcher.refresh()
        infer = partial(self._infer_one, model, model.predictor.active_names)
        # When a request times out, its images that have not started yet are cancelled.
        self._metrics.images_in_progress.inc(len(images))
        try:
            return list(await asyncio.gather(*map(infer, images)))
        finally:
            self._metrics.images_in_progress.dec(len(images))

    async def _infer_one(
        self, model: ServedModel, naming: ActiveNames, data: bytes
    ) -> Inference | ImageError:
        loop = asyncio.get_running_loop()
        work = partial(self._prepare, model, data, time.monotonic())
        prepared = await loop.run_in_executor(self._decoders, work)
        if isinstance(prepared, ImageError):
            return prepared
        try:
            inference = await model.infer(prepared, naming)
        except Exception as error:  # this image alone: the batcher has retried it by itself
            logger.error("the model failed on an image", exc_info=error)
            return ImageError("internal", "internal error: the model failed on this image")
        self._metrics.count_image(inference.prediction)
        return inference

    def _prepare(self, model: ServedModel, data: bytes, since: float) -> Prepared:
        self._metrics.wait.labels("decode").observe(time.monotonic() - since)
        read = partial(read_image, data, max_pixels=self.settings.max_pixels)
        with self._metrics.decode.time():
            return prepare(model.predictor.prepare, read)
