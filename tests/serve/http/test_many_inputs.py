"""A hundred thousand damaged inputs to a real server: no 5xx, no death, and no growing memory."""

from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from scda.serve.http.errors import STATUS
from tests.fuzzing import fuzz_input, seeds
from tests.serving import Server, serving

INPUTS, CLIENTS, PARTS = 100_000, 4, 20


def send(url: str, numbers: Sequence[int], images: Sequence[bytes]) -> Counter[tuple[str, str]]:
    """Send inputs; return how often each kind had each code."""
    found: Counter[tuple[str, str]] = Counter()
    with httpx.Client(base_url=url, timeout=120) as client:
        for number in numbers:
            asked = fuzz_input(number, images)
            headers = {"Content-Type": asked.content_type}
            answer = client.post(asked.path, content=asked.body, headers=headers)
            for code in codes(answer):
                status = STATUS.get(code, 200)
                assert answer.status_code < 500, (number, answer.text)
                assert status < 500, (number, answer.text)
                found[asked.kind, code] += 1
    return found


def codes(answer: httpx.Response) -> list[str]:
    """Return the error code, or `ok`, of the request or of each of its images."""
    document = answer.json()
    rows = document.get("results", [document])
    # The protocol of /v2 has a text in place of an error.
    errors = [row["error"] if isinstance(row, dict) and "error" in row else None for row in rows]
    return [
        "ok" if error is None else error["code"] if isinstance(error, dict) else "v2"
        for error in errors
    ]


def resident(server: Server) -> float:
    """Return the memory of all processes of a server in MiB."""
    processes = [server.process, *server.process.children(recursive=True)]
    return sum(float(process.memory_info().rss) for process in processes) / 2**20


@pytest.mark.slow
def test_a_hundred_thousand_inputs(bundle: Path) -> None:
    images, found, sizes = seeds(), Counter[tuple[str, str]](), list[float]()
    with serving(bundle, SCDA_MAX_PIXELS="1000000", SCDA_MAX_BYTES="200000") as server:
        workers = [process.pid for process in server.workers()]
        for begin in range(0, INPUTS, INPUTS // PARTS):
            end = begin + INPUTS // PARTS
            shares = [range(first, end, CLIENTS) for first in range(begin, begin + CLIENTS)]
            with ThreadPoolExecutor(CLIENTS) as pool:
                for counted in pool.map(lambda share: send(server.url, share, images), shares):
                    found += counted
            sizes.append(resident(server))
            print(end, f"{sizes[-1]:.0f} MiB", flush=True)
        assert [process.pid for process in server.workers()] == workers
    print(dict(sorted(found.items())))
    # It grows until about the 24,000th input, and then hardly.
    assert max(sizes[PARTS // 2 :]) < 1.1 * sizes[PARTS // 2 - 1], sizes
