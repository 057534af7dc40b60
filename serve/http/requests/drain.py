"""The end of a server: whether it stops, and until when its requests may run."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Drain:
    """Ends the requests of one application when it stops.

    Attributes:
        begun: Whether the server stops. New requests are no longer wanted; those that come on an
            open connection are answered, and the connection is closed.
    """

    def __init__(self) -> None:
        """Create the drain of an application that runs."""
        self.begun = False
        self._end: float | None = None  # in the event loop's time
        self._running: set[asyncio.Timeout] = set()

    def begin(self) -> None:
        """Say that the server stops; may be called by a signal handler."""
        self.begun = True

    def end_within(self, seconds: float) -> None:
        """End every request that still runs after so many seconds."""
        self.begin()
        self._end = asyncio.get_running_loop().time() + seconds
        for limit in self._running:
            limit.reschedule(self._end)

    @asynccontextmanager
    async def request(self) -> AsyncIterator[None]:
        """Run one request; raises TimeoutError when its time has come."""
        async with asyncio.timeout_at(self._end) as limit:
            self._running.add(limit)
            try:
                yield
            finally:
                self._running.discard(limit)
