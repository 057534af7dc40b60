"""The HTTP protocol of a connection: uvicorn's, with limits that hold before a key is checked."""

import asyncio
import re
from typing import Any

import h11
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from scda.serve.http.errors import RequestError
from scda.serve.http.requests.exchange import BODY_FAULT
from scda.serve.http.requests.middleware import REFUSAL
from scda.serve.http.settings import Settings
from scda.serve.workers.connections import Connections, TooManyError

MAX_HEAD = 32 * 1024  # bytes of the request line and the headers, or of the trailers of a body
MAX_HEADERS = 100
READ_BYTES = 16 * 1024  # per turn of the event loop: as chunks of one byte they take 15 ms
BODY_BYTES = 64 * 1024  # the same, inside a body that is in one piece: it takes fewer turns
_LINGER = 10  # seconds that a client has to take the answer of what was refused
_END = re.compile(rb"\n\r?\n")


class Connection(h11.Connection):
    """Parses what a client sends; counts the lines of a head before it reads them.

    Attributes:
        problem: Why the rest cannot be read.
    """

    problem: h11.RemoteProtocolError | None = None

    def next_event(self) -> Any:
        """Return the next event, or raise RemoteProtocolError."""
        try:
            if self.their_state is h11.IDLE:
                _check_head(self.trailing_data[0])
            return super().next_event()
        except h11.RemoteProtocolError as problem:
            self.problem = problem
            raise


class RequestProtocol(H11Protocol):
    """One connection. The application answers also what cannot be read.

    It finds what is wrong under `REFUSAL` or, where a body is at fault, under `BODY_FAULT`.
    """

    conn: Connection

    def __init__(self, *args: Any, **options: Any) -> None:
        """Take what uvicorn gives; `config.app.state` has the settings and the connections."""
        super().__init__(*args, **options)
        self.conn = Connection(h11.SERVER, MAX_HEAD)
        state = self.config.app.state  # type: ignore[union-attr]
        settings: Settings = state.settings
        self._connections: Connections = state.connections
        self._seconds: float = settings.upload_seconds
        self._arrival: asyncio.TimerHandle | None = None  # runs while something must arrive
        self._refused = False
        self._body_left: int | None = None  # bytes of a plain body that are to come, at least

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin; a connection on which nothing is asked ends as one between two requests does."""
        super().connection_made(transport)
        self._read_at_once(READ_BYTES)
        try:
            if refusal := self._connections.open(self._address):
                self._refuse_all(refusal)
        except TooManyError:
            transport.abort()
            return
        self._wait_for_request()

    def data_received(self, data: bytes) -> None:
        """Read on; what comes after a refusal is counted and thrown away by the application."""
        if self._refused:
            self.cycle.body += data
            if len(self.cycle.body) > HIGH_WATER_LIMIT:
                self.flow.pause_reading()  # until the application has thrown it away
            self.cycle.message_event.set()
            return
        super().data_received(data)
        self._body_left = self._left_of_body(len(data))
        self._read_at_once(BODY_BYTES if (self._body_left or 0) >= BODY_BYTES else READ_BYTES)
        if self._refused:
            return
        between = self.conn.their_state is h11.IDLE and not self.conn.trailing_data[0]
        # The application limits the time of a body until it has answered.
        rest_of_body, head = self.conn.our_state is h11.DONE, self.conn.their_state is h11.IDLE
        if between or not (rest_of_body or head):
            self._arrived()
        elif self._arrival is None:
            self._arrival = self.loop.call_later(self._seconds, self._refuse_late)
        if between:
            self._wait_for_request()

    def connection_lost(self, exc: Exception | None) -> None:
        """End."""
        self._connections.close(self._address)
        self._arrived()
        self._unset_keepalive_if_required()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        """Answer what cannot be read; uvicorn calls this."""
        problem = self.conn.problem
        if problem and problem.error_status_hint == 431:
            limits = f"{MAX_HEADERS} headers, and {MAX_HEAD:,} bytes with the request line"
            self._refuse(
                "headers_too_large", f"the headers are too large; expected at most {limits}"
            )
        else:
            self._refuse("bad_request", f"this is not HTTP/1.1: {problem or msg}")

    @property
    def _address(self) -> str:
        return self.client[0] if self.client else ""

    def _left_of_body(self, count: int) -> int | None:
        """Return how many bytes of the body under way are to come, at least.

        None outside a body; 0 for one in chunks, whose length nobody knows.

        Args:
            count: Number of bytes that were received last.
        """
        if self.conn.their_state is not h11.SEND_BODY:
            return None
        if self._body_left is not None:
            return self._body_left - count
        headers = dict(self.headers)
        if b"transfer-encoding" in headers:
            return 0
        return int(headers[b"content-length"]) - BODY_BYTES  # no more of it came with the head

    def _read_at_once(self, count: int) -> None:
        self.transport.max_size = count  # type: ignore[attr-defined]  # of asyncio, not documented

    def _refuse_all(self, error: RequestError) -> None:
        """Answer no request but the first, health checks with what they ask and others so."""
        app, self.timeout_keep_alive, self._seconds = self.app, _LINGER, _LINGER

        async def refusing(scope: Any, receive: Any, send: Any) -> None:
            scope[REFUSAL] = error
            await app(scope, receive, send)

        self.app = refusing

    def _refuse_late(self) -> None:
        limit = f"{self._seconds:g} seconds"
        self._refuse("request_timeout", f"the headers did not arrive within {limit}")

    def _refuse(self, code: str, message: str) -> None:
        self._arrived()
        self._unset_keepalive_if_required()
        self._refused = True
        if self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE):  # in the middle of an answer
            if self.cycle is not None and not self.cycle.response_complete:
                self.cycle.disconnected = True
                self.cycle.message_event.set()
            self.transport.close()
            return
        # A client that does not read its answers would hold the connection for ever.
        self._arrival = self.loop.call_later(_LINGER, self.transport.abort)
        if self.conn.our_state is h11.SEND_RESPONSE:  # the body of a request is at fault
            scope: Any = self.cycle.scope
            scope[BODY_FAULT] = RequestError(code, message)
            self.cycle.message_event.set()
            return
        self.cycle = RequestResponseCycle(
            scope=self._scope(RequestError(code, message)),
            conn=self.conn,
            transport=self.transport,
            flow=self.flow,
            logger=self.logger,
            access_logger=self.access_logger,
            access_log=False,
            default_headers=self.server_state.default_headers,
            message_event=asyncio.Event(),
            on_response=self.on_response_complete,
        )
        task = self.loop.create_task(self.cycle.run_asgi(self.app))
        task.add_done_callback(self.tasks.discard)
        self.tasks.add(task)

    def _scope(self, refusal: RequestError) -> Any:
        """Return the scope of a request of which nothing is known, but that more may come."""
        return {
            "type": "http",
            "asgi": {"version": self.asgi_version, "spec_version": "2.3"},
            "http_version": "1.1",
            "server": self.server,
            "client": self.client,
            "scheme": self.scheme,
            "method": "-",
            "root_path": "",
            "path": "",
            "raw_path": b"",
            "query_string": b"",
            "headers": [(b"transfer-encoding", b"chunked")],
            "state": {},
            REFUSAL: refusal,
        }

    def _wait_for_request(self) -> None:
        self._unset_keepalive_if_required()
        self.timeout_keep_alive_task = self.loop.call_later(
            self.timeout_keep_alive, self.timeout_keep_alive_handler
        )

    def _arrived(self) -> None:
        if self._arrival is not None:
            self._arrival.cancel()
        self._arrival = None


def _check_head(received: bytes) -> None:
    """Check the head at the begin of what has arrived; it may be incomplete."""
    end = _END.search(received)
    size = end.end() if end else len(received)
    if size > MAX_HEAD or received.count(b"\n", 0, size) > MAX_HEADERS + 2:
        raise h11.RemoteProtocolError("the head is too large", error_status_hint=431)
