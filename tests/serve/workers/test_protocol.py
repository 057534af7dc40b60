"""Connections over real sockets to the server of a worker, which runs in this process."""

import asyncio
import json
import logging
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from scda.models.predictor import Predictor
from scda.serve.http.application import create_app
from scda.serve.http.settings import Settings
from scda.serve.workers.protocol import BODY_BYTES, MAX_HEAD, READ_BYTES, RequestProtocol
from scda.serve.workers.server import WorkerServer
from tests.bundles import picture

HEAD = b"POST /v1/predict HTTP/1.1\r\nHost: localhost\r\n"
GET = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
TINY = b"a:\r\n"

Connect = Callable[[], Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]]]


@asynccontextmanager
async def serving(predictor: Predictor, **settings: Any) -> AsyncIterator[Connect]:
    """Serve with the key `secret` until the block ends."""
    app = create_app(
        predictor, Settings(bundle=Path("bundle"), threads=1, api_key="secret", **settings)
    )
    started = asyncio.Event()

    async def on_start() -> None:
        started.set()

    server = WorkerServer(app, app.state.settings, on_start=on_start)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        running = asyncio.create_task(server._serve([listener]))  # leaves signals to pytest
        await started.wait()
        try:
            yield lambda: asyncio.open_connection("127.0.0.1", port)
        finally:
            server.should_exit, server._interrupted = True, True
            await running


def run(scenario: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(scenario, 120))


async def answer(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    """Return the status and the body of the next answer."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
    length = int(head.partition("content-length: ")[2].partition("\r\n")[0])
    return int(head.split()[1]), await reader.readexactly(length)


async def refusal(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> tuple[int, str]:
    """Return the status and the code of an error, after which the connection is closed."""
    status, body = await answer(reader)
    writer.write_eof()  # otherwise the server waits for more, to throw it away
    error = json.loads(body)["error"]
    assert error.keys() == {"code", "message", "request_id"}
    assert await reader.read() == b""
    return status, error["code"]


async def ask(connect: Connect, *parts: bytes) -> tuple[int, str]:
    reader, writer = await connect()
    for part in parts:
        writer.write(part)
        await asyncio.sleep(0.01)
    try:
        return await refusal(reader, writer)
    finally:
        writer.close()


async def metrics(connect: Connect) -> str:
    reader, writer = await connect()
    writer.write(b"GET /metrics HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer secret\r\n\r\n")
    _, text = await answer(reader)
    writer.close()
    return text.decode()


@pytest.mark.parametrize(
    "parts",
    [
        (HEAD + b"X: " + b"x" * MAX_HEAD,),
        (HEAD + b"X: ", b"x" * MAX_HEAD, b"x" * 500_000),
        (HEAD + TINY * 101,),
        (HEAD + TINY * 60, TINY * 60),
        (HEAD + TINY * 101 + b"\r\n",),
        (b"GET /" + b"x" * MAX_HEAD + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",),
        (HEAD + b"X: 1\r\n" + b" \r\n" * 110 + b"\r\n",),  # continued lines
    ],
)
def test_large_headers_are_refused_before_the_key_is_looked_for(
    predictor: Predictor, parts: tuple[bytes, ...]
) -> None:
    async def scenario() -> None:
        async with serving(predictor) as connect:
            assert await ask(connect, *parts) == (431, "headers_too_large")
            text = await metrics(connect)
            assert 'scda_errors_total{code="headers_too_large"} 1.0' in text
            assert 'scda_request_seconds_count{route="other",status="431"} 1.0' in text

    run(scenario())


@pytest.fixture
def received(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of what connections receive in one turn of the event loop each."""
    sizes = list[int]()
    original = RequestProtocol.data_received

    def record(self: RequestProtocol, data: bytes) -> None:
        sizes.append(len(data))
        original(self, data)

    monkeypatch.setattr(RequestProtocol, "data_received", record)
    return sizes


def test_the_parser_sees_no_more_than_the_limits(predictor: Predictor, received: list[int]) -> None:
    """A hundred megabytes of headers, of which the sender is told at the first."""

    async def scenario() -> None:
        async with serving(predictor) as connect:
            _, writer = await connect()
            writer.write(HEAD)
            try:
                for _ in range(1600):
                    writer.write(TINY * 16_000)
                    await writer.drain()
            except ConnectionError:
                pass
            writer.close()

    run(scenario())
    assert max(received) <= READ_BYTES
    assert sum(received) < 3 * 2**20  # what is discarded, so that the sender sees the answer


def test_a_body_in_one_piece_takes_few_turns_and_what_follows_it_is_bounded(
    predictor: Predictor, received: list[int]
) -> None:
    size = 40 * BODY_BYTES
    head = HEAD + b"Authorization: Bearer secret\r\n"
    body = head + b"Content-Length: %d\r\n\r\n" % size + b"x" * size
    chunks = b"1\r\nx\r\n" * (6 * READ_BYTES // 6) + b"0\r\n\r\n"

    async def scenario() -> None:
        async with serving(predictor) as connect:
            reader, writer = await connect()
            writer.write(body + head + b"Transfer-Encoding: chunked\r\n\r\n" + chunks)
            assert (await answer(reader))[0] == 415
            assert (await answer(reader))[0] == 415
            writer.close()

    run(scenario())
    assert READ_BYTES < max(received) <= BODY_BYTES
    whole = np.cumsum(received)
    behind = [count for count, end in zip(received, whole, strict=True) if end > len(body)]
    assert sum(behind) > 5 * READ_BYTES
    assert max(behind) <= READ_BYTES


def test_headers_within_the_limits_are_read(predictor: Predictor) -> None:
    async def scenario() -> None:
        async with serving(predictor) as connect:
            for more in (b"X: " + b"x" * 30_000 + b"\r\n", TINY * 99):
                reader, writer = await connect()
                writer.write(GET + more + b"\r\n")
                assert (await answer(reader))[0] == 200
                writer.close()

    run(scenario())


def test_a_second_request_on_the_connection_has_the_same_limits(predictor: Predictor) -> None:
    async def scenario() -> None:
        async with serving(predictor) as connect:
            reader, writer = await connect()
            writer.write(GET + b"\r\n" + HEAD + TINY * 10_000 + b"\r\n")
            assert (await answer(reader))[0] == 200
            assert await refusal(reader, writer) == (431, "headers_too_large")
            writer.close()

    run(scenario())


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ((b"hello\r\n\r\n",), (400, "bad_request")),
        ((b"\x16\x03\x01\x02\x00\x01",), (400, "bad_request")),  # the begin of TLS
        ((GET + b"\r\n".replace(b"\r\n", b"Host: b\r\n\r\n"),), (400, "bad_request")),
        ((HEAD + b"Content-Length: x\r\n\r\n",), (400, "bad_request")),
        ((CHUNKED, b"zz\r\n"), (401, "unauthorized")),
    ],
)
def test_what_is_not_http_has_the_shape_of_every_error(
    predictor: Predictor, parts: tuple[bytes, ...], expected: tuple[int, str]
) -> None:
    async def scenario() -> None:
        async with serving(predictor) as connect:
            assert await ask(connect, *parts) == expected

    run(scenario())


def fields(record: logging.LogRecord) -> dict[str, Any]:
    """Return what the log line of a request says."""
    return dict(getattr(record, "fields", {}))


def test_a_body_that_is_not_http_ends_its_request_and_is_counted_once(
    predictor: Predictor, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    key = b"Authorization: Bearer secret\r\nX-Request-Id: %d\r\n"
    bodies = {
        b"zz\r\n": (400, "bad_request"),
        b"1\r\nx\r\n0\r\n" + b"X: " + b"x" * MAX_HEAD: (431, "headers_too_large"),
    }

    async def scenario() -> None:
        async with serving(predictor) as connect:
            for number, (body, expected) in enumerate(bodies.items()):
                head = HEAD + key % number + CHUNKED[len(HEAD) :]
                assert await ask(connect, head, body) == expected
                assert await ask(connect, head + body) == expected  # before the request has begun
            _, writer = await connect()
            writer.write(HEAD + key % 9 + CHUNKED[len(HEAD) :] + b"5\r\nabc")
            writer.close()  # cut off
            while len(lines := [r for r in caplog.records if r.message == "request"]) < 5:
                await asyncio.sleep(0.01)
            assert [(fields(r)["id"], fields(r)["status"]) for r in lines] == [
                *(("0", 400), ("0", 400), ("1", 431), ("1", 431), ("9", 400))
            ]
            text = await metrics(connect)
            assert 'scda_errors_total{code="bad_request"} 3.0' in text
            assert 'scda_errors_total{code="headers_too_large"} 2.0' in text
            assert 'scda_request_seconds_count{route="/v1/predict",status="400"} 3.0' in text
            assert 'status="400",route="other"' not in text

    run(scenario())


def test_headers_that_arrive_too_slowly_are_refused(predictor: Predictor) -> None:
    async def scenario() -> None:
        async with serving(predictor, upload_seconds=0.2) as connect:
            assert await ask(connect, b"GET /livez HT", b"T") == (408, "request_timeout")
            reader, writer = await connect()  # the second request of a connection
            writer.write(GET + b"\r\n")
            assert (await answer(reader))[0] == 200
            writer.write(GET)
            assert await refusal(reader, writer) == (408, "request_timeout")
            writer.close()

    run(scenario())


def test_slow_uploads_keep_nobody_from_a_place_in_the_queue(predictor: Predictor) -> None:
    head = HEAD + b"Authorization: Bearer secret\r\nContent-Length: %d\r\n\r\n"
    red = picture("red")

    async def scenario() -> None:
        async with serving(predictor, queue=4) as connect:
            slow = [await connect() for _ in range(64)]
            for _, writer in slow:
                writer.write(head % 999 + red[:2])
            for _ in range(8):
                reader, writer = await connect()
                writer.write(head % len(red) + red)
                assert (await answer(reader))[0] == 200
                writer.close()
            for _, writer in slow:
                writer.close()

    run(scenario())


@pytest.mark.parametrize("key", [b"secret", b"wrong"])
def test_a_slow_upload_ends_its_connection(predictor: Predictor, key: bytes) -> None:
    """Also if it is refused at its begin, and little is left of it, which is read."""

    async def scenario() -> None:
        async with serving(predictor, upload_seconds=0.2) as connect:
            reader, writer = await connect()
            begin = b"Authorization: Bearer %s\r\nContent-Length: 999\r\n\r\nxx" % key
            writer.write(HEAD + begin)
            status, _ = await answer(reader)
            assert status == (408 if key == b"secret" else 401)
            with suppress(ConnectionError):
                while not reader.at_eof():
                    writer.write(b"x")
                    with suppress(TimeoutError):
                        await asyncio.wait_for(reader.read(), 0.05)
            writer.close()

    run(scenario())


def test_a_connection_goes_on_after_the_rest_of_a_refused_upload(predictor: Predictor) -> None:
    async def scenario() -> None:
        for ask_again, keep_alive in ((True, 60), (False, 0.6)):
            settings = {"upload_seconds": 0.2, "keep_alive_seconds": keep_alive}
            async with serving(predictor, **settings) as connect:
                reader, writer = await connect()
                writer.write(HEAD + b"Content-Length: 4\r\n\r\nxx")
                assert (await answer(reader))[0] == 401
                writer.write(b"xx")
                if ask_again:
                    writer.write(GET + b"\r\n")
                    assert (await answer(reader))[0] == 200
                else:
                    assert await reader.read() == b""
                writer.close()

    run(scenario())


def test_a_connection_on_which_nothing_is_asked_is_closed(predictor: Predictor) -> None:
    async def scenario() -> None:
        async with serving(predictor, keep_alive_seconds=0.1) as connect:
            reader, writer = await connect()
            assert await reader.read() == b""
            writer.close()

    run(scenario())


def test_a_refused_client_that_reads_no_answer_holds_no_memory_and_is_cut_off(
    predictor: Predictor, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = list[RequestProtocol]()
    connection_made = RequestProtocol.connection_made

    def note(self: RequestProtocol, transport: asyncio.Transport) -> None:
        connection_made(self, transport)
        self.flow.pause_writing()  # as asyncio does where the answers before are not read
        made.append(self)

    async def scenario() -> None:
        async with serving(predictor) as connect:
            reader, writer = await connect()
            writer.write(b"x\r\n\r\n")
            with suppress(ConnectionError):
                for _ in range(1_000):  # 64 MB; without a limit all of it is taken and held
                    writer.write(bytes(65536))
                    await writer.drain()
                assert await reader.read() == b""
            (protocol,) = made
            assert len(protocol.cycle.body) < 2**18
            writer.close()

    monkeypatch.setattr(RequestProtocol, "connection_made", note)
    monkeypatch.setattr("scda.serve.workers.protocol._LINGER", 1.0)
    run(scenario())
