"""Take turns: a large request, or a client of many requests, makes no other wait for all of it."""

import asyncio
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Asker:
    """One request; requests with the same client share its turns."""

    client: str = ""  # its address


class RoundRobin(Generic[T]):
    """What several requests have waiting.

    One item of each client is next, then a second one of each. The requests of one client take its
    turns in the same way.
    """

    def __init__(self) -> None:
        """Create an empty line."""
        self._clients: OrderedDict[str, OrderedDict[Asker, deque[T]]] = OrderedDict()
        self._count = 0

    def __len__(self) -> int:
        """Return the number of items."""
        return self._count

    def add(self, asker: Asker, item: T) -> None:
        """Add an item behind the others of its request."""
        requests = self._clients.setdefault(asker.client, OrderedDict())
        requests.setdefault(asker, deque()).append(item)
        self._count += 1

    def firsts(self) -> Iterator[T]:
        """Yield the first item of each request."""
        return (items[0] for requests in self._clients.values() for items in requests.values())

    def pop(self, may: Callable[[str], bool] = lambda client: True) -> T:
        """Remove and return the next item; its client and request are the last from now on.

        Args:
            may: Whether it may be a client's turn.

        Raises:
            StopIteration: If there is none.
        """
        client = next(filter(may, self._clients))
        requests = self._clients.pop(client)
        asker, items = requests.popitem(last=False)
        item = items.popleft()
        if items:
            requests[asker] = items
        if requests:
            self._clients[client] = requests
        self._count -= 1
        return item


class SharedThreads:
    """Threads whose work takes turns as in `RoundRobin`."""

    def __init__(self, name: str, count: int, *, of_one: int | None = None) -> None:
        """Start no thread yet.

        Args:
            name: Beginning of the names of the threads.
            count: Number of threads.
            of_one: Largest number of threads that one client uses at the same time.
        """
        self._threads = ThreadPoolExecutor(count, name)
        self._free, self._of_one = count, of_one or count
        self._used: Counter[str] = Counter()  # threads by client
        self._waiting: RoundRobin[tuple[str, asyncio.Future[None]]] = RoundRobin()

    async def run(
        self,
        asker: Asker,
        work: Callable[[], T],
        *,
        on_turn: Callable[[], object] = lambda: None,
        begin_by: float | None = None,
        end_by: float | None = None,
    ) -> T:
        """Return the result of `work`, called on a thread.

        Args:
            asker: Whose work it is.
            work: Once begun, it has its thread until it ends, even when nobody waits for it.
            on_turn: Called when the work begins.
            begin_by: Time of the event loop until which the work must begin.
            end_by: Time of the event loop until which it must end.

        Raises:
            TimeoutError: If it does not begin or end in time.
        """
        await self._turn(asker, begin_by)
        loop = asyncio.get_running_loop()
        result: asyncio.Future[T] = loop.create_future()

        def end(done: Future[T]) -> None:
            self._give_back(asker.client)
            if result.done():  # nobody waits any more
                return
            if error := done.exception():
                result.set_exception(error)
            else:
                result.set_result(done.result())

        def ended(done: Future[T]) -> None:
            with suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(end, done)  # which wakes it once for both

        try:
            on_turn()
            future = self._threads.submit(work)
        except BaseException:  # such as RuntimeError, where the system has no thread left
            self._give_back(asker.client)
            raise
        future.add_done_callback(ended)
        try:
            async with asyncio.timeout_at(end_by):
                return await result
        except BaseException:
            future.cancel()  # if it has not begun
            raise

    async def _turn(self, asker: Asker, begin_by: float | None) -> None:
        loop = asyncio.get_running_loop()
        if begin_by is not None and loop.time() >= begin_by:
            raise TimeoutError
        if self._may(asker.client):
            self._take(asker.client)
            return
        turn: asyncio.Future[None] = loop.create_future()
        self._waiting.add(asker, (asker.client, turn))
        try:
            async with asyncio.timeout_at(begin_by):
                await turn
        except BaseException:
            if turn.done() and not turn.cancelled():  # it came at the same moment
                self._give_back(asker.client)
            raise

    def _may(self, client: str) -> bool:
        return self._free > 0 and self._used[client] < self._of_one

    def _take(self, client: str) -> None:
        self._free -= 1
        self._used[client] += 1

    def _give_back(self, client: str) -> None:
        self._free += 1
        self._used[client] -= 1
        if not self._used[client]:
            del self._used[client]
        with suppress(StopIteration):
            while True:
                client, turn = self._waiting.pop(self._may)
                if not turn.done():  # done: cancelled, because its request timed out
                    self._take(client)
                    turn.set_result(None)
