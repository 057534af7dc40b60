"""The program `scda-adapt serve`, as a process of its own."""

import json
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from scda.models.predictor import Predictor
from tests.bundles import picture
from tests.serve.http.test_application import code_of, expected
from tests.serving import Server, serving
from tests.waiting import wait_for


@pytest.fixture(scope="module")
def server(bundle: Path) -> Iterator[Server]:
    """Started once for this module; the last test stops it."""
    limits = {"SCDA_MAX_BYTES": "100000", "SCDA_DRAIN_SECONDS": "1"}
    with serving(bundle, workers=1, SCDA_LOG="json", **limits) as server:
        yield server


def lines(server: Server) -> list[dict[str, Any]]:
    return [json.loads(line) for line in server.log.read_text().splitlines()]


def connect(server: Server, text: str = "") -> socket.socket:
    url = server.client.base_url
    connection = socket.create_connection((url.host, url.port), timeout=120)
    connection.sendall(text.replace("\n", "\r\n").encode())
    return connection


def is_refused(server: Server) -> bool:
    try:
        connect(server).close()
    except ConnectionRefusedError:
        return True
    except ConnectionResetError:  # it waited while the socket was closed
        return False
    return False


def answer(connection: socket.socket) -> str:
    """Return what comes until the server closes the connection."""
    parts = []
    with connection:
        while part := connection.recv(65536):
            parts.append(part)
    return b"".join(parts).decode()


def test_it_answers_over_the_network(server: Server, predictor: Predictor) -> None:
    wanted = expected(predictor, picture("red"))
    form = server.client.post("/v1/predict", files={"image": picture("red")})
    raw = server.client.post("/v1/predict", content=picture("red"))
    assert form.json() == raw.json() == wanted
    near = server.client.post("/v1/nearest", content=picture("red")).json()
    assert near["prediction"] == wanted
    (address,) = near["classes"][0]["exemplars"]
    assert server.client.get(address).content == picture("red")


def test_every_route_is_ours(server: Server) -> None:
    for path in ("/livez", "/readyz", "/healthz"):
        assert server.client.get(path).status_code == server.client.head(path).status_code == 200
    assert "scda_request_seconds" in server.client.get("/metrics").text
    assert server.client.get("/docs.json").json()["info"]["title"] == "scda"
    assert "Classify an image" in server.client.get("/").text
    assert server.client.get("/page.js").headers["content-type"].startswith("text/javascript")
    assert code_of(server.client.get("/nowhere")) == "not_found"
    assert code_of(server.client.put("/v1/model")) == "method_not_allowed"


def test_bad_input_has_our_shape_over_the_network_too(server: Server) -> None:
    def chunks() -> Iterator[bytes]:
        for _ in range(100):
            yield b"x" * 10_000

    post = server.client.post
    assert code_of(post("/v1/predict", content=b"hello")) == "not_an_image"
    assert code_of(post("/v1/predict", content=picture("red")[:300])) == "cannot_decode"
    assert code_of(post("/v1/predict", files={"image": b"x" * 200_000})) == "too_many_bytes"
    assert code_of(post("/v1/predict", content=chunks())) == "too_many_bytes"
    headers = [(b"Content-Type", b"image/\xff")]
    assert code_of(post("/v1/predict", content=b"hello", headers=headers)) == "not_an_image"


def test_nothing_but_the_port_can_be_connected_to(server: Server) -> None:
    everyone = [server.process, *server.process.children(recursive=True)]
    listening = {
        connection.laddr
        for process in everyone
        for connection in process.net_connections(kind="all")
        if connection.status == psutil.CONN_LISTEN
        or (connection.family == socket.AF_UNIX and connection.laddr)
    }
    url = server.client.base_url
    assert listening == {(url.host, url.port)}


def test_each_request_is_one_line_of_json_whatever_is_sent(server: Server) -> None:
    asked = server.client.get("/x%0a%1b[31mforged", headers={"X-Request-Id": "trace-1"})
    assert asked.headers["X-Request-Id"] == "trace-1"
    wait_for(lambda: "trace-1" in server.log.read_text(), True)  # it is logged after the answer
    (line,) = (one for one in lines(server) if one.get("id") == "trace-1")
    assert line.pop("time").endswith("+00:00")
    assert 0 < line.pop("ms") < 60_000
    assert line == {
        "level": "info",
        "message": "request",
        "id": "trace-1",
        "method": "GET",
        "route": "other",
        "status": 404,
        "code": "not_found",
        "client": "127.0.0.1",
        "bytes_in": 0,
        "bytes_out": len(asked.content),
    }
    assert "forged" not in server.log.read_text()
    url = server.client.base_url
    assert f"serving at http://{url.host}:{url.port}" in [one["message"] for one in lines(server)]


def test_what_uvicorn_cannot_read_or_upgrade_has_no_line_of_its_own(server: Server) -> None:
    upgrade = "GET /nowhere HTTP/1.1\nHost: localhost\nX-Request-Id: ws\nUpgrade: websocket\n"
    with connect(server, f"{upgrade}Connection: upgrade\n\nrubbish\n\n"):
        wait_for(lambda: [one.get("status") for one in lines(server)][-2:], [404, 400])
    assert {one["message"] for one in lines(server)} <= {"request", lines(server)[0]["message"]}


def test_a_page_of_another_site_cannot_ask(server: Server) -> None:
    evil = server.client.get("/v1/model", headers={"Host": "evil.example:3000"})
    assert code_of(evil) == "forbidden"
    assert server.client.get("/livez", headers={"Host": "probe.internal"}).status_code == 200


def test_a_stop_closes_the_socket_and_ends_slow_uploads(server: Server) -> None:
    """One client sends its image too slowly, others have open connections."""
    slow = connect(server, "POST /v1/predict HTTP/1.1\nHost: localhost\nContent-Length: 999\n\n")
    late, idle = connect(server, "GET /readyz HTTP/1.1\nHost: localhost\n"), connect(server)
    assert server.client.get("/v1/model").status_code == 200  # they are accepted by now
    stopped = time.monotonic()
    server.process.send_signal(signal.SIGTERM)
    wait_for(lambda: "stopping" in server.log.read_text(), True)
    wait_for(lambda: is_refused(server), True)  # the worker is told last
    if time.monotonic() - stopped < 1.5:  # what is idle two seconds after the signal is closed
        late.sendall(b"\r\n")
        asked = [slow, late]
    else:  # on a machine that is very busy
        late.close()
        asked = [slow]
    for connection in asked:
        text = answer(connection)
        assert text.startswith("HTTP/1.1 503 ")
        assert "connection: close" in text
        assert '"code":"unavailable"' in text
    assert answer(idle) == ""
    assert server.process.wait(120) == 0
    with pytest.raises(httpx.TransportError):
        server.client.get("/livez")
    assert [line for line in lines(server) if line["level"] == "error"] == []
