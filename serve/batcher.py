"""Images of many requests to one call of the model; an image that fails is answered alone."""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

import faiss

from scda.models.predictor import Prediction
from scda.models.preprocess import Pixels

Predict = Callable[[Sequence[Pixels]], list[Prediction]]


@dataclass(frozen=True)
class _Waiting:
    pixels: Pixels
    answer: asyncio.Future[Prediction]
    since: float


class Batcher:
    """Runs the model on one thread, which uses all CPUs by itself, on what waits by then.

    While one call runs, the images of other requests gather for the next: under load batches grow
    by themselves, and an image that comes alone is not kept waiting.
    """

    def __init__(
        self,
        predict: Predict,
        *,
        max_batch: int,
        max_wait_seconds: float = 0.0,
        on_wait: Callable[[float], object] = lambda seconds: None,
    ) -> None:
        """Start with nothing waiting.

        Args:
            predict: Called on the model's thread with at most `max_batch` images.
            max_batch: Images per call.
            max_wait_seconds: How long an image waits for others although the model is free.
            on_wait: Told of each image how long it waited, in seconds.
        """
        self._predict, self._on_wait = predict, on_wait
        self._max_batch, self._max_wait_seconds = max_batch, max_wait_seconds
        # A search among so few centroids is over before a second thread has woken up.
        self._model = ThreadPoolExecutor(
            1, "scda-model", initializer=partial(faiss.omp_set_num_threads, 1)
        )
        self._queue: deque[_Waiting] = deque()
        self._full = asyncio.Event()
        self._worker: asyncio.Task[None] | None = None

    async def answer(self, pixels: Pixels) -> Prediction:
        """Return the answer to one prepared image."""
        loop = asyncio.get_running_loop()
        waiting = _Waiting(pixels, loop.create_future(), time.monotonic())
        self._queue.append(waiting)
        if len(self._queue) >= self._max_batch:
            self._full.set()
        if self._worker is None or self._worker.done():
            self._worker = loop.create_task(self._work())
        return await waiting.answer

    async def _work(self) -> None:
        while self._queue:
            await self._wait_for_others()
            if batch := self._next_batch():
                await self._call(batch)

    async def _wait_for_others(self) -> None:
        """Return when a batch is full, or when the first image has waited long enough."""
        self._full.clear()
        left = self._queue[0].since + self._max_wait_seconds - time.monotonic()
        if len(self._queue) < self._max_batch and left > 0:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._full.wait(), left)

    def _next_batch(self) -> list[_Waiting]:
        batch: list[_Waiting] = []
        while self._queue and len(batch) < self._max_batch:
            waiting = self._queue.popleft()
            if not waiting.answer.done():  # cancelled: its request ran out of time
                batch.append(waiting)
                self._on_wait(time.monotonic() - waiting.since)
        return batch

    async def _call(self, batch: list[_Waiting]) -> None:
        loop = asyncio.get_running_loop()
        images = [waiting.pixels for waiting in batch]
        try:
            answers = await loop.run_in_executor(self._model, self._predict, images)
        except Exception as error:  # whatever the model's library raises
            await self._call_singly(batch, error)
            return
        for waiting, answer in zip(batch, answers, strict=True):
            if not waiting.answer.done():
                waiting.answer.set_result(answer)

    async def _call_singly(self, batch: list[_Waiting], error: Exception) -> None:
        """Find the image that made the call fail; the others must not suffer."""
        if len(batch) > 1:
            for waiting in batch:
                await self._call([waiting])
        elif not batch[0].answer.done():
            batch[0].answer.set_exception(error)
