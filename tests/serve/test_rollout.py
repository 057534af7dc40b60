"""Two servers behind one port, replaced one after the other under load: no request is lost."""

import asyncio
import signal
import threading
import time
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from pathlib import Path

import httpx
import pytest

from tests.bundles import picture
from tests.serving import Server, serving
from tests.waiting import wait_for

RED, CLIENTS, ROLLOUTS = picture("red"), 12, 4


class Proxy:
    """Passes connections on to the servers in turn, as a balancer of connections does.

    Attributes:
        servers: Ports of the servers that get new connections.
        refused: Connections that a server refused, and that went to the next one.
        url: The address of the proxy.
    """

    def __init__(self) -> None:
        self.servers: list[int] = []
        self.refused, self.url = 0, ""

    @contextmanager
    def running(self) -> Iterator[None]:
        """Accept connections until the block ends, in a thread of its own."""
        ready, stop = threading.Event(), asyncio.Event()

        async def run() -> None:
            server = await asyncio.start_server(self._pass_on, "127.0.0.1", 0, backlog=512)
            self.url = "http://{}:{}".format(*server.sockets[0].getsockname())
            self._loop = asyncio.get_running_loop()
            ready.set()
            async with server:
                await stop.wait()

        with ThreadPoolExecutor(1) as thread:
            done = thread.submit(asyncio.run, run())
            ready.wait()
            try:
                yield
            finally:
                self._loop.call_soon_threadsafe(stop.set)
                done.result()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with self._server() as (far_reader, far_writer):
                pairs = (reader, far_writer), (far_reader, writer)
                await asyncio.gather(*(_copy(*pair) for pair in pairs))
        finally:  # also where the proxy stops while a connection is open
            writer.close()

    @asynccontextmanager
    async def _server(self) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
        while True:
            self.servers.append(port := self.servers.pop(0))
            try:
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                break
            except ConnectionRefusedError:  # nothing was sent, so nothing is lost
                self.refused += 1
        try:
            yield reader, writer
        finally:
            writer.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError):
        while part := await reader.read(2**16):
            writer.write(part)
            await writer.drain()
    writer.close()


class Clients:
    """Half of them keep their connection as long as the server does, half open one per image."""

    def __init__(self, url: str) -> None:
        self.url, self.stop, self.answers = url, threading.Event(), [0] * CLIENTS
        self.lost: list[str] = []
        self.stopped = 0.0  # when the last server was told to stop

    def run(self, number: int) -> None:
        """Ask until told to stop."""
        headers = {"Connection": "close"} if number % 2 else {}
        with httpx.Client(base_url=self.url, headers=headers, timeout=120) as client:
            while not self.stop.is_set():
                begun = time.monotonic()
                try:
                    answer = client.post("/v1/predict", content=RED)
                    assert (answer.status_code, answer.json()["label"]) == (200, "red")
                    self.answers[number] += 1
                except Exception as error:  # whatever it is, the request is lost
                    self.lost.append(
                        f"{error!r} {time.monotonic() - begun:.2f} s after the request, "
                        f"{time.monotonic() - self.stopped:.2f} s after the last SIGTERM"
                    )

    def wait_for_answers(self) -> None:
        """Wait until each client has been answered twice."""
        before = list(self.answers)
        wait_for(
            lambda: all(now > 1 + b for now, b in zip(self.answers, before, strict=True)), True
        )


@pytest.mark.slow
@pytest.mark.parametrize("told_first", [True, False])
def test_no_request_is_lost_while_servers_are_replaced(bundle: Path, *, told_first: bool) -> None:
    """With `told_first`, the proxy hears of the stop before the server does, as with preStop."""
    proxy = Proxy()
    with ExitStack() as servers, proxy.running(), ThreadPoolExecutor(CLIENTS) as threads:
        clients = Clients(proxy.url)

        def start() -> Server:
            server = servers.enter_context(serving(bundle, SCDA_THREADS="1"))
            proxy.servers.append(port_of(server))
            return server

        running = [start(), start()]
        for number in range(CLIENTS):
            threads.submit(clients.run, number)
        try:
            for _ in range(ROLLOUTS):
                clients.wait_for_answers()
                running.append(start())
                old = running.pop(0)
                if told_first:
                    proxy.servers.remove(port_of(old))
                clients.stopped = time.monotonic()
                old.process.send_signal(signal.SIGTERM)
                assert old.process.wait(120) == 0
                if not told_first:
                    proxy.servers.remove(port_of(old))
            clients.wait_for_answers()
        finally:
            clients.stop.set()
    assert clients.lost == []
    assert (proxy.refused == 0) == told_first
    print(sum(clients.answers), "answers,", proxy.refused, "refused connections")


def port_of(server: Server) -> int:
    return httpx.URL(server.url).port or 80
