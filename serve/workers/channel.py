"""Calls between the supervisor and a worker, as lines of JSON over a pair of sockets.

The sockets have no address: a worker inherits its end, and nobody else can connect.
"""

import asyncio
import itertools
import json
import logging
import socket
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any

from scda.models.errors import DataError, GateError, ScdaError, UsageError

logger = logging.getLogger(__name__)
Handler = Callable[..., Awaitable[Any]]
_MAX_LINE = 64 * 2**20  # bytes; the metrics of a worker are the longest
_GONE = "the other process has ended"
_ERRORS = {error.__name__: error for error in (UsageError, DataError, GateError)}


class Channel:
    """One end of the pair; calls work while it is open."""

    def __init__(self) -> None:
        """Create a closed channel."""
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._numbers, self._waiting = itertools.count(), dict[int, asyncio.Future[Any]]()
        self._running = set[asyncio.Task[None]]()

    async def call(self, name: str, **arguments: Any) -> Any:
        """Return what the handler `name` of the other end returns.

        Raises:
            ScdaError: If the handler raised one.
            ConnectionError: If the other end has closed.
        """
        number = next(self._numbers)
        answer = self._waiting[number] = asyncio.get_running_loop().create_future()
        try:
            await self._send({"number": number, "call": name, "with": arguments})
            return await answer
        finally:
            del self._waiting[number]

    async def open(self, end: socket.socket) -> None:
        """Open the channel over one end of a socket pair."""
        self._reader, self._writer = await asyncio.open_connection(sock=end, limit=_MAX_LINE)

    async def run(self, handlers: Mapping[str, Handler]) -> None:
        """Answer the calls of the other end until it closes.

        Args:
            handlers: By name, what the other end may call with JSON values as keyword arguments.
        """
        with suppress(ConnectionError):
            while self._reader and (line := await self._reader.readline()):
                message = json.loads(line)
                if "call" in message:
                    task = asyncio.create_task(self._answer(message, handlers))
                    self._running.add(task)
                    task.add_done_callback(self._running.discard)
                elif waiting := self._waiting.get(message["number"]):
                    _settle(waiting, message)
        self._close()

    def _close(self) -> None:
        if self._writer:
            self._writer.close()
        self._writer = None
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(ConnectionError(_GONE))

    async def _answer(self, message: dict[str, Any], handlers: Mapping[str, Handler]) -> None:
        answer: dict[str, Any] = {"number": message["number"]}
        try:
            answer["result"] = await handlers[message["call"]](**message["with"])
        except ScdaError as error:
            answer["error"] = [type(error).__name__, str(error)]
        except Exception as error:
            logger.error("the call %s failed", message["call"], exc_info=error)
            answer["error"] = ["ScdaError", f"internal error: {error}"]
        with suppress(ConnectionError):
            await self._send(answer)

    async def _send(self, message: dict[str, Any]) -> None:
        if self._writer is None:
            raise ConnectionError(_GONE)
        self._writer.write(json.dumps(message).encode() + b"\n")
        await self._writer.drain()


def _settle(waiting: "asyncio.Future[Any]", message: dict[str, Any]) -> None:
    if waiting.done():  # its caller was cancelled
        return
    if "error" in message:
        kind, text = message["error"]
        waiting.set_exception(_ERRORS.get(kind, ScdaError)(text))
    else:
        waiting.set_result(message["result"])
