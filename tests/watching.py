"""Watch a server from a process of its own, which the work of a test cannot delay.

As a program it asks until its input ends, and prints what it saw as JSON: each kind of request as a
list of its beginning (the clock of `time.monotonic`), its seconds, and its status. Next to the
server it asks one that does nothing, which tells how long the machine alone keeps a request
waiting.
"""

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

HEALTH_SECONDS, PREDICT_SECONDS = 0.05, 0.1  # from one request to the next
_OURS = ("127.0.0.2", 0)  # another client than a test


@dataclass(frozen=True)
class Seen:
    """One request: when it began, how many seconds it took, and the status of its answer."""

    began: float
    seconds: float
    status: int


@dataclass
class Watch:
    """What was seen, by `health`, `idle` (the server that does nothing) and `predict`."""

    seen: dict[str, list[Seen]] = field(default_factory=dict)

    def between(self, kind: str, begin: float, end: float) -> list[Seen]:
        """Return the requests that began in a span of time."""
        return [one for one in self.seen[kind] if begin <= one.began < end]


@contextmanager
def watching(url: str, image: Path) -> Iterator[Watch]:
    """Ask until the block ends, and give what was seen when it has ended."""
    words = [sys.executable, __file__, url, str(image)]
    watch = Watch()
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            yield watch
        finally:
            said, _ = process.communicate()
    found = json.loads(said)
    watch.seen |= {kind: [Seen(*one) for one in rows] for kind, rows in found.items()}


def main() -> None:
    """Ask until the input ends."""
    url, image = sys.argv[1:]
    body, idle = Path(image).read_bytes(), _serve_nothing()
    questions = {
        "health": (url, "GET", "/livez", b"", HEALTH_SECONDS),
        "idle": (idle, "GET", "/livez", b"", HEALTH_SECONDS),
        "predict": (url, "POST", "/v1/predict", body, PREDICT_SECONDS),
    }
    stop, seen = threading.Event(), {kind: list[list[float]]() for kind in questions}
    threads = [
        threading.Thread(target=_ask, args=(*question, stop, seen[kind]))
        for kind, question in questions.items()
    ]
    for thread in threads:
        thread.start()
    sys.stdin.read()
    stop.set()
    for thread in threads:
        thread.join()
    json.dump(seen, sys.stdout)


def _ask(
    url: str,
    method: str,
    path: str,
    body: bytes,
    every: float,
    stop: threading.Event,
    seen: list[list[float]],
) -> None:
    address = urlsplit(url)
    while not stop.is_set():
        began = time.monotonic()
        connection = HTTPConnection(
            address.hostname or "", address.port, timeout=120, source_address=_OURS
        )
        try:
            connection.request(method, path, body)
            answer = connection.getresponse()
            answer.read()
            status = answer.status
        except OSError:
            status = 0
        finally:
            connection.close()
        seconds = time.monotonic() - began
        seen.append([began, seconds, status])
        stop.wait(max(0.0, every - seconds))


def _serve_nothing() -> str:
    """Start the server that does nothing, and return its address."""
    words = [sys.executable, "-c", _NOTHING]
    process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout  # its input, and so the server, ends with this process
    return f"http://127.0.0.1:{process.stdout.readline().strip()}"


_NOTHING = """
import asyncio, sys

async def answer(reader, writer):
    await reader.readuntil(b"\\r\\n\\r\\n")
    writer.write(b"HTTP/1.1 200 OK\\r\\nContent-Length: 0\\r\\nConnection: close\\r\\n\\r\\n")
    writer.close()

async def main():
    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.to_thread(sys.stdin.read)
    server.close()

asyncio.run(main())
"""

if __name__ == "__main__":
    main()
