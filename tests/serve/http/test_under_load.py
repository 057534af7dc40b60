"""The real server under many clients at once, bad ones among them, and under signals."""

import http.client
import itertools
import json
import math
import signal
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import psutil
import pytest

from tests.bundles import RGB, picture
from tests.nasty import nasty_files
from tests.serving import Server, is_ready, serving
from tests.waiting import wait_for

_CLIENTS = 64
_MAX_BYTES = 100_000


@dataclass(frozen=True)
class Question:
    """A request, and what must come back: the code of an error, or the class of a picture."""

    body: bytes
    wanted: str
    headers: dict[str, str] = field(default_factory=dict)
    method: str = "POST"
    path: str = "/v1/predict"
    chunked: bool = False


Answered = tuple[Question, int, dict[str, object]]  # the status and the body


def started(bundle: Path) -> AbstractContextManager[Server]:
    """A server that gives costly images the time to wait for their turn on a busy machine."""
    limits = {"SCDA_MAX_BYTES": str(_MAX_BYTES), "SCDA_QUEUE": "128"}
    return serving(bundle, workers=1, **limits, SCDA_TIMEOUT_SECONDS="300")


@pytest.fixture(scope="module")
def server(bundle: Path) -> Iterator[Server]:
    with started(bundle) as server:
        yield server


def good_questions() -> list[Question]:
    bodies = [(colour, picture(colour, kind=k)) for colour in RGB for k in ("JPEG", "PNG")]
    raw = [Question(body, colour) for colour, body in bodies]
    return raw + [Question(_form(body), colour, _FORM) for colour, body in bodies]


def bad_questions() -> list[Question]:
    """Every bad file, and every bad request around a good one."""
    files = [
        Question(file.data, file.code)
        for file in nasty_files().values()
        if file.code != "ok" and len(file.data) <= _MAX_BYTES
    ]
    red = picture("red")
    bare = {"Content-Type": "multipart/form-data"}
    return [
        *files,
        Question(_form(red, name="photo"), "bad_request", _FORM),
        Question(_form(red)[:-30], "bad_request", _FORM),
        Question(_form(red), "bad_request", bare),
        Question(b"garbage", "bad_request", _FORM),
        Question(
            _form(red) * 2, "bad_request", {"Content-Type": "multipart/form-data; boundary=x"}
        ),
        Question(_form(red, red), "too_many_files", _FORM),
        Question(_form(b""), "empty", _FORM),
        Question(b"x" * (_MAX_BYTES + 1), "too_many_bytes"),
        Question(b"x" * (2 * _MAX_BYTES), "too_many_bytes", chunked=True),
        Question(red, "bad_request", path="/v1/predict_batch"),
        Question(red, "not_found", path="/v1/nothing"),
        Question(red, "method_not_allowed", method="PUT"),
    ]


_FORM = {"Content-Type": "multipart/form-data; boundary=frontier"}


def _form(*files: bytes, name: str = "image") -> bytes:
    head = f'--frontier\r\nContent-Disposition: form-data; name="{name}"; filename="a"\r\n\r\n'
    return b"".join(head.encode() + file + b"\r\n" for file in files) + b"--frontier--\r\n"


def ask(
    connection: http.client.HTTPConnection, question: Question
) -> tuple[int, dict[str, object]]:
    body = iter([question.body]) if question.chunked else question.body
    try:
        connection.request(
            question.method,
            question.path,
            body,
            question.headers,
            encode_chunked=question.chunked,
        )
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        if question.wanted == "too_many_bytes":  # the rest of the body is never read
            connection.close()


def storm(url: str, questions: Sequence[Question]) -> list[Answered]:
    """Ask everything once, `_CLIENTS` at a time; each client keeps its connection."""
    turns, lock = iter(questions), threading.Lock()

    def client() -> list[Answered]:
        connection = _connection(url)
        answers: list[Answered] = []
        while True:
            with lock:
                question = next(turns, None)
            if question is None:
                connection.close()
                return answers
            answers.append((question, *ask(connection, question)))

    with ThreadPoolExecutor(_CLIENTS) as pool:
        clients = [pool.submit(client) for _ in range(_CLIENTS)]
        return [answer for future in clients for answer in future.result()]


def check(answers: Sequence[Answered]) -> None:
    alone: dict[bytes, dict[str, object]] = {}
    for question, status, answer in answers:
        assert status < 500, answer
        if "error" in answer:
            error = answer["error"]
            assert isinstance(error, dict)
            assert error["code"] == question.wanted, (question.headers, question.body[:80])
        else:
            assert question.wanted in RGB
            assert alone.setdefault(question.body, answer) == answer


def mixed(count: int) -> list[Question]:
    """Return questions of which every fifth is bad, and every bad one occurs."""
    good, bad = itertools.cycle(good_questions()), itertools.cycle(bad_questions())
    return [next(bad) if i % 5 == 4 else next(good) for i in range(count)]


def test_good_answers_are_those_of_one_client_whatever_others_send(server: Server) -> None:
    questions = good_questions()
    connection = _connection(server.url)
    serial = {question.body: ask(connection, question)[1] for question in questions}
    connection.close()
    count = 5 * len(bad_questions())
    answers = storm(server.url, mixed(count))
    check(answers)
    good = [(question, answer) for question, _, answer in answers if question.wanted in RGB]
    assert len(answers) == count
    assert len(good) == count - count // 5
    for question, answer in good:
        assert answer == serial[question.body]


@pytest.mark.slow
def test_memory_stays_flat_over_twenty_thousand_requests(bundle: Path) -> None:
    with started(bundle) as server:
        everyone = [server.process, *server.workers()]

        def resident() -> int:
            return sum(process.memory_info().rss for process in everyone)

        sizes = []
        for _ in range(10):
            check(storm(server.url, mixed(4_000)))
            sizes.append(resident())
        print([f"{size / 2**20:.1f} MiB" for size in sizes])
        # It grows until about the 24,000th request, most of it before the 20,000th.
        assert sizes[-1] < 1.05 * sizes[4], sizes


def test_what_was_begun_before_the_signal_is_answered(bundle: Path) -> None:
    """Half of some bodies arrive only after SIGTERM, others are on their way in a storm."""
    with serving(bundle) as server:
        slow = [_begin(server.url, picture(colour)) for colour in RGB]
        storm, stop = Storm(server.url), threading.Event()
        with ThreadPoolExecutor(8) as pool:
            clients = [pool.submit(storm.until, stop) for _ in range(8)]
            while len(storm.answered) < 100:
                assert not any(client.done() for client in clients)
                time.sleep(0.01)
            signalled = time.monotonic()
            server.process.send_signal(signal.SIGTERM)
            time.sleep(0.3)
            for connection, rest in slow:
                connection.sendall(rest)
            answers = [_end(connection) for connection, _ in slow]
            stop.set()
        assert [status for status, _ in answers] == [200] * len(slow)
        assert set(storm.answered) == {200}
        assert all(connected >= signalled for connected in storm.lost)
        assert server.process.wait(120) == 0


class Storm:
    """Clients that open a connection for every request, until they are refused."""

    def __init__(self, url: str) -> None:
        self.answered: list[int] = []
        self.lost: list[float] = []  # when a connection was open whose request had no answer
        self._url = url

    def until(self, stop: threading.Event) -> None:
        while not stop.is_set() and not self.lost:
            connection, connected = _connection(self._url), math.inf
            try:
                connection.connect()
                connected = time.monotonic()
                self.answered.append(ask(connection, Question(picture("red"), "red"))[0])
            except (OSError, http.client.HTTPException):
                self.lost.append(connected)
            finally:
                connection.close()


def _connection(url: str) -> http.client.HTTPConnection:
    address = urlsplit(url)
    return http.client.HTTPConnection(address.hostname or "", address.port, timeout=300)


def _begin(url: str, body: bytes) -> tuple[socket.socket, bytes]:
    """Send the headers and half of the body; return the connection and the other half."""
    address = urlsplit(url)
    connection = socket.create_connection((address.hostname or "", address.port or 0), timeout=120)
    head = f"POST /v1/predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
    half = len(body) // 2
    connection.sendall(head.encode() + body[:half])
    return connection, body[half:]


def _end(connection: socket.socket) -> tuple[int, bytes]:
    answer = http.client.HTTPResponse(connection)
    answer.begin()
    status, body = answer.status, answer.read()
    connection.close()
    return status, body


def test_a_killed_worker_is_replaced(server: Server) -> None:
    victims = server.workers()
    assert victims
    for process in victims:
        process.kill()
    psutil.wait_procs(victims, timeout=60)
    wait_for(lambda: is_ready(server.client), True)
    answer = server.client.post("/v1/predict", content=picture("red"))
    assert answer.json()["label"] == "red"
