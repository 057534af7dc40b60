import random
import socket
import string
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.bundles import picture
from tests.serve.http.test_application import code_of
from tests.serve.http.test_metrics import parsed
from tests.serving import Server, serving

KEY = {"Authorization": "Bearer key"}
MAX_BYTES = 100_000


@pytest.fixture(scope="module")
def server(bundle: Path) -> Iterator[Server]:
    """Two workers, one port, one key."""
    limits = {"SCDA_MAX_BYTES": str(MAX_BYTES)}
    with serving(bundle, workers=2, SCDA_API_KEY="key", **limits) as server:
        yield server


def ask(server: Server, method: str, path: str, **content: Any) -> httpx.Response:
    """Ask on a connection of its own, so that any worker may answer."""
    headers = KEY | {"Connection": "close"}
    return server.client.request(method, path, headers=headers, **content)


def scrape(server: Server) -> dict[str, float]:
    return dict(parsed(ask(server, "GET", "/metrics").text))


def test_the_metrics_want_the_key_and_health_does_not(server: Server) -> None:
    assert code_of(server.client.get("/metrics")) == "unauthorized"
    assert code_of(server.client.get("/metrics", headers={"Authorization": "Bearer no"}))
    assert server.client.get("/metrics", headers=KEY).status_code == 200
    for path in ("/livez", "/readyz", "/healthz"):
        assert server.client.get(path).status_code == 200


def test_any_worker_tells_what_all_have_done(server: Server) -> None:
    name = "scda_images_total{kind=known,outlier=false}"
    before = scrape(server)[name]
    with ThreadPoolExecutor(6) as threads:
        posts = [
            threads.submit(ask, server, "POST", "/v1/predict", content=picture("red"))
            for _ in range(30)
        ]
    assert {post.result().status_code for post in posts} == {200}
    assert {scrape(server)[name] - before for _ in range(8)} == {30}
    told = scrape(server)
    assert told["scda_names_version{}"] == 0
    assert [v for k, v in told.items() if k.startswith("scda_model_info")] == [1]


def test_paths_and_methods_make_no_series(server: Server) -> None:
    ask(server, "GET", "/nowhere")
    before, generator = set(scrape(server)), random.Random(0)
    for _ in range(60):
        path = "".join(generator.choices(string.ascii_letters, k=12))
        assert ask(server, generator.choice(["GET", "PUT"]), "/" + path).status_code == 404
    assert ask(server, "GET", "/nowhere?\x80").status_code == 404
    assert set(scrape(server)) == before


def test_an_endless_body_is_cut_and_the_connection_closed(server: Server) -> None:
    url, sent, chunk = server.client.base_url, 0, b"2000\r\n" + b"x" * 0x2000 + b"\r\n"
    head = "POST /v1/predict HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer key\r\n"
    with socket.create_connection((url.host, url.port), timeout=60) as connection:
        connection.sendall(f"{head}Transfer-Encoding: chunked\r\n\r\n".encode())
        with suppress(ConnectionError):  # it hangs up
            while sent < 1000 * MAX_BYTES:
                connection.sendall(chunk)
                sent += len(chunk)
        answer = connection.recv(65536)
    assert answer.startswith(b"HTTP/1.1 413 ")
    assert b"connection: close\r\n" in answer.lower()
    assert sent < 200 * MAX_BYTES  # what the two systems' buffers hold is on its way already
