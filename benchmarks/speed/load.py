"""Load on a server: clients that send files over open connections, and their latencies."""

import asyncio
import itertools
import random
import time
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

import aiohttp


@dataclass(frozen=True)
class Load:
    """Measurements under one load."""

    latencies: tuple[float, ...]  # seconds, one per answer
    seconds: float  # from the first request to the last answer
    client_seconds: float  # processor time of the clients
    server_seconds: float = 0.0  # processor time of the server's processes, where it was measured

    @property
    def rate(self) -> float:
        """Answers per second."""
        return len(self.latencies) / self.seconds

    def quantile(self, share: float) -> float:
        """Return the latency, in seconds, that `share` of the answers did not exceed."""
        return sorted(self.latencies)[
            min(len(self.latencies) - 1, int(share * len(self.latencies)))
        ]


def keep_busy(
    url: str, field: str, files: Sequence[bytes], *, clients: int, seconds: float
) -> Load:
    """Send files without pauses: each client sends its next file once it has an answer.

    Args:
        url: Address of the route.
        field: Name of the form field for the file.
        files: Contents of the files, which are sent in turn.
        clients: Number of clients, each with its own connection.
        seconds: Time after which no request begins.
    """
    return asyncio.run(_keep_busy(url, field, files, clients, seconds))


async def _keep_busy(
    url: str, field: str, files: Sequence[bytes], clients: int, seconds: float
) -> Load:
    latencies: list[float] = []
    turns = itertools.cycle(files)
    async with _session(clients) as session:
        end = time.perf_counter() + seconds

        async def client() -> None:
            while (began := time.perf_counter()) < end:
                await _send(session, url, field, next(turns))
                latencies.append(time.perf_counter() - began)

        return await _measured(latencies, [client() for _ in range(clients)])


def at_even_paces(clients: int, *, rate: float, seconds: float) -> list[float]:
    """Return the moments at which the clients send, `rate` per second in total.

    Each client sends at an even pace and begins at a random moment.
    """
    rng, pace = random.Random(0), clients / rate
    begins = [rng.uniform(0, pace) for _ in range(clients)]
    return sorted(b + pace * i for b in begins for i in range(int((seconds - b) / pace)))


def at_random(*, rate: float, seconds: float) -> list[float]:
    """Return independent moments, `rate` per second on average (Poisson)."""
    rng, moments, moment = random.Random(0), list[float](), 0.0
    while (moment := moment + rng.expovariate(rate)) < seconds:
        moments.append(moment)
    return moments


def arrive(url: str, field: str, files: Sequence[bytes], moments: Sequence[float]) -> Load:
    """Send files at given moments, in seconds from now, whether or not answers come.

    A latency is measured from the planned moment, so that a server that stalls cannot hide it by
    delaying its clients.
    """
    return asyncio.run(_arrive(url, field, files, moments))


async def _arrive(url: str, field: str, files: Sequence[bytes], moments: Sequence[float]) -> Load:
    latencies: list[float] = []
    async with _session(0) as session:
        start = time.perf_counter()

        async def request(moment: float, file: bytes) -> None:
            await asyncio.sleep(max(0.0, start + moment - time.perf_counter()))
            await _send(session, url, field, file)
            latencies.append(time.perf_counter() - start - moment)

        pairs = zip(moments, itertools.cycle(files), strict=False)
        return await _measured(latencies, [request(*pair) for pair in pairs])


async def _measured(latencies: list[float], work: Sequence[Coroutine[None, None, None]]) -> Load:
    began, processor = time.perf_counter(), time.process_time()
    await asyncio.gather(*work)
    seconds, client_seconds = time.perf_counter() - began, time.process_time() - processor
    return Load(tuple(latencies), seconds, client_seconds)


@asynccontextmanager
async def _session(connections: int) -> AsyncIterator[aiohttp.ClientSession]:
    """Yield a session with a largest number of connections; 0 sets no limit."""
    connector = aiohttp.TCPConnector(limit=connections)
    async with aiohttp.ClientSession(connector=connector, raise_for_status=True) as session:
        yield session


async def _send(session: aiohttp.ClientSession, url: str, field: str, file: bytes) -> None:
    form = aiohttp.FormData()
    form.add_field(field, file, filename="image.jpg", content_type="image/jpeg")
    async with session.post(url, data=form) as answer:
        await answer.read()
