"""The queue in front of the model: a limited number of requests, each for a limited time."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import TypeVar

from fastapi import Request

from scda.models.decoding.cheap import prepare_cheap
from scda.models.decoding.decoders import CostlyImages
from scda.models.decoding.limits import ProcessLimits
from scda.models.errors import DataError, ImageError
from scda.models.limits import ImageLimits
from scda.models.predictor import ActiveNames
from scda.models.preprocess import Prepared, Preprocessing
from scda.serve.http.bodies.body import Body, HeldBytes
from scda.serve.http.errors import RequestError
from scda.serve.http.metrics import Metrics
from scda.serve.http.served.model import Inference, ServedModel
from scda.serve.http.served.switch import ModelSwitch
from scda.serve.http.served.turns import Asker, SharedThreads
from scda.serve.http.settings import Settings
from scda.serve.imaging import Answer

T = TypeVar("T")
logger = logging.getLogger(__name__)
_COSTLY_SHARE = 2 / 3  # of a request's time that decoding a costly image may take
_ANSWER_SHARE = 1 / 15  # of a request's time that is left for the model
_NICENESS = 10  # cheap images come first


class InferenceQueue:
    """Decodes images and passes them to the served model.

    Cheap images are decoded on several threads. Costly ones are decoded in processes, so that they
    can neither take all memory, nor keep cheap ones waiting.

    Attributes:
        models: The model that is served.
        settings: The limits of the server.
    """

    def __init__(self, models: ModelSwitch, settings: Settings, metrics: Metrics) -> None:
        """Create an empty queue."""
        self.models, self.settings, self._metrics = models, settings, metrics
        self._limits = ImageLimits(max_bytes=settings.max_bytes, max_pixels=settings.max_pixels)
        # One thread, and one process, more than one client may use: however much it sends, others
        # need not wait.
        self._cheap = SharedThreads("scda-decode", settings.parallel + 1, of_one=settings.parallel)
        self._costly_images = CostlyImages(
            self._limits,
            most=settings.parallel + 1,
            process=ProcessLimits.for_images(
                self._limits,
                patience=_COSTLY_SHARE * settings.timeout_seconds,
                niceness=_NICENESS,
            ),
        )
        processes = self._costly_images.at_once  # one alone, where the memory is small
        self._costly = SharedThreads("scda-costly", processes, of_one=max(1, processes - 1))
        self._in_flight = 0
        self._held = HeldBytes(settings.held_bytes, show=metrics.requests.body_bytes.set)

    @asynccontextmanager
    async def admit(
        self, request: Request, read: Callable[[Body], Awaitable[T]]
    ) -> AsyncIterator[T]:
        """Read what a request asks for, then hold a place for it until its answer is known.

        A place is taken when the body has arrived, so that slow clients take none.

        Args:
            request: The request.
            read: Returns what the body asks for.

        Raises:
            RequestError: With code `overloaded` if there is no place, `timeout`, or one of `read`.
        """
        self._check_room()  # rather than read a body in vain
        with self._held.share() as take:
            asked = await read(Body(request, self.settings, take))
            async with self._place():
                yield asked

    @asynccontextmanager
    async def _place(self) -> AsyncIterator[None]:
        self._check_room()
        self._in_flight += 1
        try:
            async with asyncio.timeout(self.settings.timeout_seconds):
                with self._metrics.requests.in_progress.track_inprogress():
                    yield
        except TimeoutError:
            limit = self.settings.timeout_seconds
            raise RequestError("timeout", f"no answer within {limit:g} seconds") from None
        finally:
            self._in_flight -= 1

    def _check_room(self) -> None:
        if self._in_flight >= self.settings.queue:
            message = f"the queue is full ({self._in_flight} requests); try again later"
            raise RequestError("overloaded", message)

    async def predict(self, request: Request, images: Sequence[bytes]) -> list[Answer]:
        """Return the prediction or the error of each image file, in order, all by one model."""
        with self.models.pinned() as model:
            results = await self.infer(request, model, images)
        return [one if isinstance(one, ImageError) else one.prediction for one in results]

    async def infer(
        self, request: Request, model: ServedModel, images: Sequence[bytes]
    ) -> list[Inference | ImageError]:
        """Return the inference or the error of each image file, in order, under one set of names.

        Args:
            request: Whose images they are; clients take turns, and so do their requests.
            model: From `models.pinned`, held by the caller until the answer is complete.
            images: The bytes of the files.
        """
        model.watcher.refresh()
        asker = Asker(request.client.host if request.client else "")
        infer = partial(self._infer_one, model, model.predictor.active_names, asker)
        # When a request times out, its images that have not started yet are cancelled.
        self._metrics.images.in_progress.inc(len(images))
        try:
            return list(await asyncio.gather(*map(infer, images)))
        finally:
            self._metrics.images.in_progress.dec(len(images))

    async def _infer_one(
        self, model: ServedModel, naming: ActiveNames, asker: Asker, data: bytes
    ) -> Inference | ImageError:
        prepared = await self._prepare(model, asker, data)
        if isinstance(prepared, ImageError):
            return prepared
        try:
            inference = await model.infer(prepared, naming, asker)
        except Exception as error:  # this image alone: the batcher has retried it by itself
            logger.error("the model failed on an image", exc_info=error)
            return ImageError("internal", "internal error: the model failed on this image")
        self._metrics.count(inference.prediction)
        return inference

    async def _prepare(self, model: ServedModel, asker: Asker, data: bytes) -> Prepared:
        loop, preprocessing = asyncio.get_running_loop(), model.predictor.manifest.preprocessing
        began, seconds = loop.time(), self.settings.timeout_seconds
        wait = self._metrics.images.wait.labels("decode")
        prepared = await self._cheap.run(
            asker,
            partial(self._timed, self._prepare_cheap, preprocessing, data),
            on_turn=lambda: wait.observe(loop.time() - began),
        )
        if prepared is not None:
            return prepared
        try:
            prepared = await self._costly.run(
                asker,
                partial(self._timed, self._costly_images.prepare, preprocessing, data),
                begin_by=began + (1 - _ANSWER_SHARE - _COSTLY_SHARE) * seconds,
                end_by=began + (1 - _ANSWER_SHARE) * seconds,
            )
        except TimeoutError:
            return ImageError(
                "overloaded", "other images that take long are being decoded; try again later"
            )
        except DataError as error:
            logger.error("%s", error)
        if prepared is None:
            return ImageError("internal", "internal error: no process to decode the image")
        return prepared

    def _prepare_cheap(self, preprocessing: Preprocessing, data: bytes) -> Prepared | None:
        return prepare_cheap(preprocessing, [data], self._limits)[0]

    def _timed(
        self,
        prepare: Callable[[Preprocessing, bytes], Prepared | None],
        preprocessing: Preprocessing,
        data: bytes,
    ) -> Prepared | None:
        began = time.perf_counter()
        prepared = prepare(preprocessing, data)
        if prepared is not None:
            self._metrics.images.decode.observe(time.perf_counter() - began)
        return prepared
