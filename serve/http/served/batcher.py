"""Batch the images of many requests into few calls of the model."""

import asyncio
import math
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Generic, TypeVar

import faiss

from scda.serve.http.served.turns import Asker, RoundRobin

J = TypeVar("J")  # a prepared image, with what its answer needs
A = TypeVar("A")  # the answer for one image
_DEPTH = 2  # waiting images per lane, up to which each is run by itself


@dataclass(frozen=True)
class _Waiting(Generic[J, A]):
    job: J
    answer: asyncio.Future[A]
    since: float


class Batcher(Generic[J, A]):
    """Runs the model in a few parallel lanes, each on a batch of the images that are waiting.

    While all lanes are busy, the images of other requests queue up, and the next free lane takes
    its share of them: one image of each request, then a second one of each. So batches grow under
    load, a single image need not wait, and it waits for no large request. If a call fails, its
    images are tried one by one, and the error goes to the failing image alone.
    """

    def __init__(
        self,
        predict: Callable[[Sequence[J]], Sequence[A]],
        *,
        max_batch: int,
        max_wait_seconds: float = 0.0,
        lanes: int = 1,
        on_wait: Callable[[float], object] = lambda seconds: None,
    ) -> None:
        """Create a batcher with an empty queue.

        Args:
            predict: Called on the thread of a lane with at most `max_batch` images.
            max_batch: Largest number of images per call.
            max_wait_seconds: Time that an image waits for others although a lane is free.
            lanes: Number of parallel calls; above 1, `predict` must be thread-safe.
            on_wait: Called with the waiting time of each image, in seconds.
        """
        self._predict, self._on_wait = predict, on_wait
        self._max_batch, self._max_wait_seconds = max_batch, max_wait_seconds
        self._lanes = lanes
        # The search among a few centroids is finished before a second thread has started.
        self._model = ThreadPoolExecutor(
            lanes, "scda-model", initializer=partial(faiss.omp_set_num_threads, 1)
        )
        self._queue: RoundRobin[_Waiting[J, A]] = RoundRobin()
        self._full = asyncio.Event()
        self._workers: list[asyncio.Task[None]] = []  # at most one per lane

    async def answer(self, job: J, asker: Asker) -> A:
        """Return the answer to one prepared image.

        Args:
            job: The image.
            asker: Whose image it is; they take turns.
        """
        loop = asyncio.get_running_loop()
        waiting: _Waiting[J, A] = _Waiting(job, loop.create_future(), time.monotonic())
        self._queue.add(asker, waiting)
        if len(self._queue) >= self._max_batch:
            self._full.set()
        self._workers = [worker for worker in self._workers if not worker.done()]
        if len(self._workers) < self._lanes:
            self._workers.append(loop.create_task(self._work()))
        return await waiting.answer

    def close(self) -> None:
        """End the threads, and let go of the model; no image may be waiting."""
        self._model.shutdown(wait=False)
        del self._predict  # a method of what holds this batcher: a circle would keep both alive

    async def _work(self) -> None:
        while self._queue:
            await self._wait_for_others()
            if batch := self._next_batch():
                await self._call(batch)

    async def _wait_for_others(self) -> None:
        """Wait until a batch is full or one of the images has waited long enough."""
        self._full.clear()
        since = min(waiting.since for waiting in self._queue.firsts())
        left = since + self._max_wait_seconds - time.monotonic()
        if len(self._queue) < self._max_batch and left > 0:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._full.wait(), left)

    def _next_batch(self) -> list[_Waiting[J, A]]:
        batch: list[_Waiting[J, A]] = []
        share = min(self._max_batch, self._share())
        while self._queue and len(batch) < share:
            waiting = self._queue.pop()
            if not waiting.answer.done():  # done: cancelled, because its request timed out
                batch.append(waiting)
                self._on_wait(time.monotonic() - waiting.since)
        return batch

    def _share(self) -> int:
        """Return how many waiting images this lane takes.

        Images that have waited for each other go into one batch, and so do those of a single lane,
        which may be a GPU. On several lanes a batch grows only with a long queue: it is hardly
        faster than its images one by one, and the first of them waits for the last.
        """
        if self._max_wait_seconds or self._lanes == 1:
            return self._max_batch
        return math.ceil(len(self._queue) / (_DEPTH * self._lanes))

    async def _call(self, batch: list[_Waiting[J, A]]) -> None:
        loop = asyncio.get_running_loop()
        jobs = [waiting.job for waiting in batch]
        try:
            answers = await loop.run_in_executor(self._model, self._predict, jobs)
            answered = list(zip(batch, answers, strict=True))
        except Exception as error:  # the runtime may raise anything
            await self._call_singly(batch, error)
            return
        for waiting, answer in answered:
            if not waiting.answer.done():
                waiting.answer.set_result(answer)

    async def _call_singly(self, batch: list[_Waiting[J, A]], error: Exception) -> None:
        """Run the images of a failed batch one by one, to answer all but the failing ones."""
        if len(batch) > 1:
            for waiting in batch:
                await self._call([waiting])
        elif not batch[0].answer.done():
            batch[0].answer.set_exception(error)
