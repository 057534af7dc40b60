"""The real server as a process of its own, started as `scda-adapt serve` starts it."""

import os
import random
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import httpx
import psutil


@dataclass(frozen=True)
class Server:
    """A server that was ready once; `client` is connected to it, and `log` has its lines."""

    process: psutil.Popen
    client: httpx.Client
    log: Path

    @property
    def url(self) -> str:
        return str(self.client.base_url)

    def workers(self) -> list[psutil.Process]:
        """The processes that answer; the one started only watches over them."""
        return list(self.process.children())


def command(bundle: Path, *, port: int, workers: int = 1) -> list[str]:
    """Return the words that start the server."""
    words = ("serve", bundle, "--port", port, "--workers", workers)
    return [sys.executable, "-m", "scda.adapt", *map(str, words)]


@contextmanager
def serving(
    bundle: Path,
    started_by: Callable[[Sequence[str]], list[str]] = list,
    /,
    *,
    workers: int = 1,
    **settings: str,
) -> Iterator[Server]:
    """Serve `bundle` until the block ends.

    `started_by` changes the words that start the server; `settings` are environment variables.
    """
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as home:
        port, log = free_port(), Path(home) / "log"
        argv = started_by(command(bundle, port=port, workers=workers))
        environment = {**os.environ, **settings}
        with log.open("wb") as file:
            process = psutil.Popen(argv, env=environment, cwd=home, stdout=file, stderr=file)
        try:
            with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
                _wait_until_ready(client, process, log)
                yield Server(process, client, log)
        finally:
            _end(process)


def _wait_until_ready(client: httpx.Client, process: psutil.Popen, log: Path) -> None:
    for _ in range(1200):
        assert process.poll() is None, log.read_text()
        if is_ready(client):
            return
        time.sleep(0.1)
    raise AssertionError(log.read_text())


def is_ready(client: httpx.Client) -> bool:
    """Return whether the server says that it is ready."""
    try:
        return client.get("/readyz").status_code == 200
    except httpx.TransportError:
        return False


def _end(process: psutil.Popen) -> None:
    if process.poll() is None:
        everyone = [process, *process.children(recursive=True)]
        for one in everyone:
            one.kill()
        psutil.wait_procs(everyone, timeout=10)


def free_port() -> int:
    """Return a port of this machine that nobody listens at.

    It lies below those that Linux gives to connections, one of which could take it meanwhile.
    """
    while True:
        port = random.SystemRandom().randrange(20_000, 32_000)
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
