"""The HTTP server of one worker: uvicorn, with a stop that loses no request."""

import asyncio
import os
import signal
import socket
from collections.abc import Awaitable, Callable
from types import FrameType

import uvicorn
from fastapi import FastAPI
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from scda.serve.http.metrics import Metrics
from scda.serve.http.requests.drain import Drain
from scda.serve.http.settings import Settings
from scda.serve.workers.connections import Connections
from scda.serve.workers.listening import BACKLOG
from scda.serve.workers.protocol import RequestProtocol

# A connection without a request is closed this long after SIGTERM. Until then, a request that was
# on its way is answered, and its connection is closed with the answer.
_IDLE_SECONDS = 2.0
_FLUSH_SECONDS = 1.0  # to send the last answers


class WorkerServer(uvicorn.Server):
    """Answers on sockets that are open already, until SIGTERM or SIGINT."""

    def __init__(
        self,
        app: FastAPI,
        settings: Settings,
        *,
        on_start: Callable[[], Awaitable[None]],
    ) -> None:
        """Prepare the server of an application.

        Args:
            app: The application; its `state.drain` is told when the server stops.
            settings: How long connections stay open, and requests run after a signal.
            on_start: Called before the server accepts connections.
        """
        metrics: Metrics = app.state.metrics
        trusted = os.environ.get("FORWARDED_ALLOW_IPS")  # uvicorn's name
        super().__init__(
            uvicorn.Config(
                app,
                loop="asyncio",
                http=RequestProtocol,
                ws="none",
                workers=1,
                backlog=BACKLOG,
                timeout_keep_alive=settings.keep_alive_seconds,
                proxy_headers=bool(trusted),
                forwarded_allow_ips=trusted,
                server_header=False,
                access_log=False,
                log_config=None,
            )
        )
        proxies = ProxyHeadersMiddleware(self.config.app, trusted or []).trusted_hosts  # type: ignore[arg-type]
        app.state.connections = Connections(
            settings, metrics.requests, is_proxy=lambda address: address in proxies
        )
        self._drain: Drain = app.state.drain
        self._drain_seconds, self._on_start = settings.drain_seconds, on_start
        self._interrupted = False

    def handle_exit(self, sig: int, frame: FrameType | None = None) -> None:
        """Stop; a signal handler, which may also be called without a signal."""
        self._drain.begin()  # at once, while uvicorn looks at its own flag ten times a second
        self._interrupted |= sig == signal.SIGINT
        self.should_exit = True

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept connections."""
        await self._on_start()
        await super().startup(sockets)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop accepting, end the requests in time, and close all connections."""
        clock = asyncio.get_running_loop().time
        begun = clock()
        self._drain.end_within(self._drain_seconds)
        await self._accept_the_rest(sockets or [])
        # Somebody at a terminal does not want to wait for connections that a browser holds open.
        idle_until = begun + (0 if self._interrupted else _IDLE_SECONDS)
        end = begun + self._drain_seconds + _FLUSH_SECONDS
        connections, closing = self.server_state.connections, False
        while connections and clock() < end:
            if not closing and clock() >= idle_until:
                for connection in list(connections):
                    connection.shutdown()
                closing = True
            await asyncio.sleep(0.02)
        await self.lifespan.shutdown()

    async def _accept_the_rest(self, sockets: list[socket.socket]) -> None:
        """Close the listening sockets; closing one resets the connections that wait in it."""
        waiting = []
        for listener in sockets:
            try:
                while True:
                    waiting.append(listener.accept()[0])
            except OSError:  # nobody waits, or another worker was faster
                pass
        for server in self.servers:
            server.close()  # and with it the listener
        loop = asyncio.get_running_loop()
        for connection in waiting:
            connection.setblocking(False)
            await loop.connect_accepted_socket(self._protocol, connection)

    def _protocol(self) -> asyncio.Protocol:
        return self.config.http_protocol_class(  # type: ignore[call-arg]
            config=self.config, server_state=self.server_state, app_state=self.lifespan.state
        )
