"""One request and its answer: what is received and sent, and how the connection goes on."""

import asyncio
import re
import time
from contextlib import suppress
from random import getrandbits  # an id is no secret

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import Message, Receive, Scope, Send

from scda.serve.http.errors import STATUS
from scda.serve.http.requests.drain import Drain

# What proxies and tracers send: UUIDs, `Root=1-67891233-abcdef`, numbers.
_SAFE_ID = re.compile(r"[A-Za-z0-9._:/+=@-]{1,128}")
BODY_FAULT = "scda.body_fault"  # in the scope of a request whose body cannot be read: its error
_SMALL = 64 * 1024  # bytes that are sooner read than a connection is opened
DISCARD_BYTES, _DISCARD_SECONDS = 2**20, 2.0


class Exchange:
    """Stands between the server and the application.

    A request that is answered before its body has arrived would keep the connection busy with bytes
    that nobody wants. Unless little is left, the connection is closed with the answer. Before that,
    some of the body is read: a client that still sends would otherwise see a reset connection
    instead of the answer.

    Attributes:
        id: The request's id: the client's, if it is short and plain, or a new one.
        method: The method that the client used.
        closing: Whether the connection ends with this answer in any case.
        seconds: Time from the request to the begin of the answer.
        status: The status of the answer; 0 as long as there is none.
        received: Bytes of the body that were read.
        sent: Bytes of the answer's body.
    """

    def __init__(self, scope: Scope, receive: Receive, send: Send, drain: Drain) -> None:
        """Begin.

        Args:
            scope: The request.
            receive: Returns what the client sends.
            send: Sends the answer.
            drain: Says whether the server stops, and the connection ends with this answer.
        """
        self._scope, self._receive, self._send = scope, receive, send
        self._drain, self.closing = drain, False
        headers = Headers(scope=scope)
        self.id = _id(headers.get("x-request-id", ""))
        self.method: str = scope["method"]
        self.status, self.received, self.sent, self.seconds = 0, 0, 0, 0.0
        self._began, self._abandons = time.perf_counter(), False
        self._expected = _length(headers)  # bytes of the body; infinite if it does not say
        self._complete = not self._expected

    async def receive(self) -> Message:
        """Return what the client sends next.

        Raises:
            RequestError: If the server cannot read it.
        """
        message = await self._next()
        if fault := self._scope.get(BODY_FAULT):
            raise fault
        return message

    async def _next(self) -> Message:
        message = await self._receive()
        self.received += len(message.get("body", b""))
        self._complete = not message.get("more_body", False)
        return message

    async def send(self, message: Message) -> None:
        """Send a part of the answer."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.seconds = time.perf_counter() - self._began
            rest = 0 if self._complete else self._expected - self.received
            self._abandons = rest > _SMALL
            # The server may have begun to stop since the request came. A client that is not told
            # sends its next request into a connection that is being closed.
            ends = self.closing or self._drain.begun or self.status == STATUS["request_timeout"]
            if self._abandons or ends:
                MutableHeaders(scope=message)["Connection"] = "close"
        elif message["type"] == "http.response.body":
            if self.method == "HEAD":
                message = {**message, "body": b""}
            self.sent += len(message.get("body", b""))
            if self._abandons and not message.get("more_body", False):
                await self._send({**message, "more_body": True})
                await self._discard()
                message = {"type": "http.response.body", "body": b""}
        await self._send(message)

    async def _discard(self) -> None:
        most = self.received + DISCARD_BYTES
        with suppress(TimeoutError):
            async with asyncio.timeout(_DISCARD_SECONDS):
                while not self._complete and self.received < most:
                    await self._next()


def _id(offered: str) -> str:
    # Without a call of the system, as uuid4 makes, after which a busy model's threads come first.
    return offered if _SAFE_ID.fullmatch(offered) else f"{getrandbits(128):032x}"


def _length(headers: Headers) -> float:
    if "transfer-encoding" in headers:
        return float("inf")
    length = headers.get("content-length", "0")
    return int(length) if length.isdecimal() and len(length) < 20 else float("inf")
