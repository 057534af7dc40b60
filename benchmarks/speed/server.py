"""A server process: start it, wait until it answers, and stop it."""

import os
import socket
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import psutil

_START_SECONDS, _LOOK_SECONDS = 120, 0.01


@dataclass(frozen=True)
class Server:
    """A server that is ready."""

    process: psutil.Popen
    url: str  # address of its root, without the last slash

    @property
    def processes(self) -> list[psutil.Process]:
        """The started process and its descendants."""
        return [self.process, *self.process.children(recursive=True)]

    def processor_seconds(self) -> float:
        """Return the processor time that its processes have used so far."""
        times = [process.cpu_times() for process in self.processes]
        return float(sum(used.user + used.system for used in times))

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Resume it for the block only: some servers use processor time without requests."""
        for process in self.processes:
            process.resume()
        try:
            yield
        finally:
            self.rest()

    def rest(self) -> None:
        """Suspend all its processes."""
        for process in self.processes:
            process.suspend()


@contextmanager
def ours(bundle: Path, *, workers: int = 1, **settings: str) -> Iterator[Server]:
    """Serve a bundle as `scda-adapt serve` does; `settings` are SCDA_ variables."""
    port = free_port()
    words = ("serve", bundle, "--port", port, "--workers", workers)
    argv = [sys.executable, "-m", "scda.adapt", *map(str, words)]
    with started(argv, {**os.environ, **settings}, port, ready="/readyz") as server:
        yield server


@contextmanager
def litserve(bundle: Path, *, workers: int, threads: int) -> Iterator[Server]:
    """Serve a bundle's model with LitServe: `workers` processes of `threads` threads each."""
    port = free_port()
    script = Path(__file__).with_name("litserve_app.py")
    argv = [sys.executable, str(script), *map(str, (bundle, port, workers, threads))]
    with started(argv, os.environ, port, ready="/health") as server:
        yield server


@contextmanager
def started(
    argv: Sequence[str], environment: Mapping[str, str], port: int, *, ready: str
) -> Iterator[Server]:
    """Run a server until the block ends; its output is shown if it does not become ready."""
    with tempfile.TemporaryFile() as log:
        process = psutil.Popen(list(argv), env=dict(environment), stdout=log, stderr=log)
        server = Server(process, f"http://127.0.0.1:{port}")
        try:
            if not _is_up(server, ready):
                log.seek(0)
                raise SystemExit(log.read().decode(errors="replace"))
            yield server
        finally:
            _end(server)


def _is_up(server: Server, ready: str) -> bool:
    end = time.monotonic() + _START_SECONDS
    while time.monotonic() < end and server.process.poll() is None:
        try:
            with urlopen(server.url + ready, timeout=5) as answer:
                if answer.status == 200:
                    return True
        except (URLError, OSError):
            pass
        time.sleep(_LOOK_SECONDS)
    return False


def _end(server: Server) -> None:
    try:
        processes = server.processes
    except psutil.NoSuchProcess:
        return
    for process in processes:
        process.resume()
    server.process.terminate()
    _, left = psutil.wait_procs(processes, timeout=30)
    for process in left:
        process.kill()


def free_port() -> int:
    """Return a free port of this machine."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])
