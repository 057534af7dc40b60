"""Take turns: the images of a large request do not make those of others wait for all of them."""

import asyncio
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Generic, TypeVar

T = TypeVar("T")


class RoundRobin(Generic[T]):
    """What several owners have waiting; one item of each is next, then a second one of each."""

    def __init__(self) -> None:
        """Create an empty line."""
        self._items: OrderedDict[object, deque[T]] = OrderedDict()
        self._count = 0

    def __len__(self) -> int:
        """Return the number of items."""
        return self._count

    def add(self, owner: object, item: T) -> None:
        """Add an item behind the others of its owner."""
        self._items.setdefault(owner, deque()).append(item)
        self._count += 1

    def firsts(self) -> Iterator[T]:
        """Yield the first item of each owner, in the order of their turns."""
        return (items[0] for items in self._items.values())

    def pop(self) -> T:
        """Remove and return the next item; its owner is the last from now on.

        Raises:
            KeyError: If there is none.
        """
        owner, items = self._items.popitem(last=False)
        item = items.popleft()
        if items:
            self._items[owner] = items
        self._count -= 1
        return item


class Turns:
    """A limited number of tasks at a time; those that wait take turns by their owners."""

    def __init__(self, at_once: int) -> None:
        """Allow `at_once` tasks at a time."""
        self._free = at_once
        self._waiting: RoundRobin[asyncio.Future[None]] = RoundRobin()

    @asynccontextmanager
    async def turn(self, owner: object, *, patience: float | None = None) -> AsyncIterator[None]:
        """Hold a turn until the block ends.

        Args:
            owner: Whose task it is, such as a request.
            patience: Seconds to wait for the turn; None waits without limit.

        Raises:
            TimeoutError: If the turn does not come in time.
        """
        if self._free:
            self._free -= 1
        else:
            await self._wait(owner, patience)
        try:
            yield
        finally:
            self._hand_on()

    async def _wait(self, owner: object, patience: float | None) -> None:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.add(owner, turn)
        try:
            async with asyncio.timeout(patience):
                await turn
        except BaseException:
            if turn.done() and not turn.cancelled():  # it came at the same moment
                self._hand_on()
            raise

    def _hand_on(self) -> None:
        while self._waiting:
            turn = self._waiting.pop()
            if not turn.done():  # done: cancelled, because its request timed out
                turn.set_result(None)
                return
        self._free += 1
