import asyncio
import copy
import json
import threading
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from hypothesis import given, settings
from hypothesis import strategies as st
from starlette.types import Message

from scda.models.bundle import NAMES
from scda.models.decoding.cheap import prepare_cheap
from scda.models.decoding.content import File
from scda.models.errors import ImageError
from scda.models.images import read_image
from scda.models.limits import ImageLimits
from scda.models.predictor import Outputs, Predictor, load_predictor
from scda.models.preprocess import Pixels, Prepared, Preprocessing
from scda.serve.http.application import create_app
from scda.serve.http.errors import STATUS
from scda.serve.http.metrics import Metrics
from scda.serve.http.requests.exchange import DISCARD_BYTES
from scda.serve.http.served.watcher import BundleWatcher
from scda.serve.http.settings import Settings
from tests.bundles import make_bundle, picture
from tests.nasty import encode, four

RED = picture("red")


def app_for(predictor: Predictor, **changes: Any) -> FastAPI:
    return create_app(predictor, Settings(**{"bundle": Path("bundle"), "threads": 1, **changes}))


@pytest.fixture(scope="module")
def app(predictor: Predictor) -> FastAPI:
    return app_for(predictor, max_bytes=100_000, max_pixels=1_000_000, max_files=3)


def client_of(app: FastAPI) -> httpx.AsyncClient:
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    return httpx.AsyncClient(transport=transport, base_url="http://localhost")


def ask(app: FastAPI, method: str, path: str, **content: Any) -> httpx.Response:
    async def send() -> httpx.Response:
        async with client_of(app) as client:
            return await client.request(method, path, **content)

    return asyncio.run(send())


def predict(app: FastAPI, **content: Any) -> httpx.Response:
    return ask(app, "POST", "/v1/predict", **content)


def code_of(response: httpx.Response) -> str:
    """Return the error's code after checking everything around it."""
    body = response.json()
    assert list(body) == ["error"]
    assert set(body["error"]) == {"code", "message", "request_id"}
    assert body["error"]["request_id"] == response.headers["x-request-id"]
    assert response.status_code == STATUS[body["error"]["code"]]
    return str(body["error"]["code"])


def expected(predictor: Predictor, data: bytes) -> dict[str, Any]:
    (prediction,) = predictor.predict([predictor.prepare(read_image(data))])
    return prediction.to_json()


def test_a_form_and_a_raw_body_give_what_the_predictor_gives(
    app: FastAPI, predictor: Predictor
) -> None:
    wanted = expected(predictor, RED)
    assert predict(app, files={"image": ("x.jpg", RED)}).json() == wanted
    assert predict(app, content=RED).json() == wanted


@pytest.mark.parametrize(
    "kind", ["image/png", "image/jpg", "text/plain", "application/x-www-form-urlencoded", "?", ""]
)
def test_the_content_type_of_a_raw_body_does_not_matter(app: FastAPI, kind: str) -> None:
    response = predict(app, content=RED, headers={"Content-Type": kind})
    assert response.json()["label"] == "red"


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"", "empty"),
        (b"hello", "not_an_image"),
        (b"http://127.0.0.1/x.jpg", "not_an_image"),
        (RED[:300], "cannot_decode"),
        (picture("red", size=(2000, 1000), kind="PNG"), "too_many_pixels"),
        (b"\xff" * 100_001, "too_many_bytes"),
    ],
)
def test_a_bad_image_has_the_same_code_in_a_form_and_raw(
    app: FastAPI, data: bytes, code: str
) -> None:
    assert code_of(predict(app, content=data)) == code
    assert code_of(predict(app, files={"image": ("x.jpg", data)})) == code


@pytest.mark.parametrize("length", range(1, len(RED), 37))
def test_a_truncated_image_is_never_a_5xx(app: FastAPI, length: int) -> None:
    response = predict(app, content=RED[:length])
    if response.status_code != 200:
        assert code_of(response) in ("cannot_decode", "not_an_image")


def test_a_form_may_arrive_byte_by_byte(app: FastAPI, predictor: Predictor) -> None:
    async def slowly() -> AsyncIterator[bytes]:
        for i in range(len(FILE)):
            yield FILE[i : i + 1]
        yield b"\r\n--x--\r\n"

    assert predict(app, content=slowly(), headers=FORM).json() == expected(predictor, RED)


def test_the_byte_limit_stops_reading_a_body_without_a_length(app: FastAPI) -> None:
    for kind in ("image/jpeg", "multipart/form-data; boundary=x"):
        sent = 0

        async def endless() -> AsyncIterator[bytes]:
            nonlocal sent
            yield b'--x\r\nContent-Disposition: form-data; name="image"; filename="x"\r\n\r\n'
            while True:
                sent += 1
                yield b"x" * 10_000

        response = predict(app, content=endless(), headers={"Content-Type": kind})
        assert code_of(response) == "too_many_bytes"
        # The limit and the framing of a form; then 1 MiB, for a client that still sends its body
        # would not see the answer if the connection were closed at once.
        assert sent <= 19 + DISCARD_BYTES // 10_000


PART = b'--x\r\nContent-Disposition: form-data; name="image"; filename="x"\r\n'
FORM = {"Content-Type": "multipart/form-data; boundary=x"}
FILE, END = PART + b"\r\n" + RED, b"\r\n--x--\r\n"


@pytest.mark.parametrize(
    ("content", "code"),
    [
        ({"data": {"image": "hello"}, "files": {"other": b"x"}}, "not_an_image"),
        ({"files": {"image": (None, "http://127.0.0.1/x.jpg")}}, "not_an_image"),
        ({"files": {"other": RED}}, "bad_request"),
        ({"files": [("image", RED), ("image", RED)]}, "too_many_files"),
        ({"content": b"", "headers": FORM}, "bad_request"),
        ({"content": b"--x--", "headers": FORM}, "bad_request"),
        ({"content": FILE, "headers": FORM}, "bad_request"),  # cut before the last boundary
        ({"content": FILE.replace(b"--x", b"--y"), "headers": FORM}, "bad_request"),
        ({"content": FILE.replace(b"name", b"nome"), "headers": FORM}, "bad_request"),
        ({"content": FILE, "headers": {"Content-Type": "multipart/form-data"}}, "bad_request"),
        ({"content": FILE, "headers": {"Content-Type": FORM["Content-Type"] * 20}}, "bad_request"),
        ({"content": PART + b"a: b\r\n" * 8 + b"\r\n" + END, "headers": FORM}, "bad_request"),
        ({"content": PART + b"a: " + b"b" * 5000, "headers": FORM}, "bad_request"),
        ({"content": PART + b"a" * 5000, "headers": FORM}, "bad_request"),
        ({"files": {"i" * 5000: RED}}, "bad_request"),
        ({"files": {"image": ("x" * 5000, RED)}}, "bad_request"),
        ({"data": {f"f{i}": "x" for i in range(99)}, "files": {"image": RED}}, "bad_request"),
    ],
)
def test_a_bad_form_is_a_4xx(app: FastAPI, content: dict[str, Any], code: str) -> None:
    assert code_of(predict(app, **content)) == code


SNIPPETS = [b"--x", b"--x--", b"\r\n", b"\r\n\r\n", b"Content-Disposition: form-data", b"; name="]
SNIPPETS += [b'"image"', b'"images"', b"; filename=", b'"\xff"', b"filename*=UTF-8''x", RED]


@settings(max_examples=150, deadline=None)
@given(
    body=st.lists(st.sampled_from(SNIPPETS) | st.binary(max_size=30), max_size=12).map(b"".join),
    kind=st.sampled_from(["", "; boundary=x", '; boundary="x', "; boundary=", "; charset=utf-16"]),
    path=st.sampled_from(["/v1/predict", "/v1/predict_batch"]),
)
def test_no_form_is_a_5xx(app: FastAPI, body: bytes, kind: str, path: str) -> None:
    headers = {"Content-Type": "multipart/form-data" + kind}
    response = ask(app, "POST", path, content=body, headers=headers)
    if response.status_code != 200:
        assert code_of(response) in STATUS
    assert response.status_code < 500


@settings(max_examples=100, deadline=None)
@given(
    body=st.binary(max_size=200),
    flips=st.dictionaries(st.integers(0, 600), st.binary(min_size=1, max_size=1)),
)
def test_no_bytes_are_a_5xx(app: FastAPI, body: bytes, flips: dict[int, bytes]) -> None:
    damaged = bytearray(RED)
    for place, value in flips.items():
        damaged[place : place + 1] = value
    for data in (body, RED[:20] + body, bytes(damaged)):
        assert predict(app, content=data).status_code < 500


def test_a_batch_answers_in_order_and_bad_images_harm_no_neighbour(
    app: FastAPI, predictor: Predictor
) -> None:
    files = [("images", RED), ("images", b"hello"), ("images", picture("cyan"))]
    response = ask(app, "POST", "/v1/predict_batch", files=files)
    first, second, third = response.json()["results"]
    assert first == expected(predictor, RED)
    assert second["error"]["code"] == "not_an_image"
    assert second["error"]["request_id"] == response.headers["x-request-id"]
    assert third == expected(predictor, picture("cyan"))


def test_a_batch_has_limits(app: FastAPI) -> None:
    def batch(**content: Any) -> str:
        return code_of(ask(app, "POST", "/v1/predict_batch", **content))

    assert batch(files=[("images", RED)] * 4) == "too_many_files"
    assert batch(files=[("images", b"x" * 60_000)] * 2) == "too_many_bytes"
    assert batch(files=[("image", RED)]) == "bad_request"
    assert batch(content=RED) == "bad_request"


def test_what_is_not_there_is_json_too(app: FastAPI) -> None:
    for path in ("/v1", "/v1/model/", "/page.html", "/docs", "/%ff", "/v1/predict/../x"):
        assert code_of(ask(app, "GET", path)) == "not_found"
    response = ask(app, "DELETE", "/v1/predict")
    assert code_of(response) == "method_not_allowed"
    assert response.headers["allow"] == "POST"


def test_the_model_says_what_it_is(app: FastAPI, predictor: Predictor) -> None:
    model = ask(app, "GET", "/v1/model").json()
    assert model["model_id"] == predictor.manifest.id
    assert [c["class_id"] for c in model["classes"]] == predictor.manifest.class_ids
    assert model["limits"] == {
        "max_bytes": 100_000,
        "max_pixels": 1_000_000,
        "max_files": 3,
        "queue": 64,
        "upload_seconds": 30,
        "timeout_seconds": 30,
    }
    assert model["on_target"] is None
    assert model["preprocessing"]["id"] == predictor.manifest.preprocessing.id
    assert (model["provider"], model["names_version"]) == ("cpu", 0)


def test_a_key_is_wanted_everywhere(predictor: Predictor) -> None:
    app = app_for(predictor, api_key="sécret")
    for shown in ("", "Bearer", "Bearer wrong", "sécret", "Basic sécret", "Bearer sécretx"):
        headers = {"Authorization": shown.encode()}
        for path in ("/v1/model", "/docs.json", "/nowhere"):
            response = ask(app, "GET", path, headers=headers)
            assert code_of(response) == "unauthorized"
            assert response.headers["www-authenticate"] == "Bearer"
    headers = {"Authorization": "bearer sécret".encode()}
    assert ask(app, "GET", "/v1/model", headers=headers).status_code == 200


def test_every_answer_forbids_browsers_what_the_page_does_not_need(predictor: Predictor) -> None:
    app = app_for(predictor, api_key="secret")

    @app.get("/broken")
    async def broken() -> None:
        raise RuntimeError("a bug")

    key = {"Authorization": "Bearer secret"}
    asked = [("/", {}), ("/page.js", {}), ("/v1/model", key), ("/v1/model", {}), ("/nowhere", key)]
    for path, headers in (*asked, ("/broken", key)):
        answer = ask(app, "GET", path, headers=headers).headers
        assert "default-src 'none'" in answer["content-security-policy"]
        assert "frame-ancestors 'none'" in answer["content-security-policy"]
        assert answer["x-content-type-options"] == "nosniff"
        assert answer["referrer-policy"] == "no-referrer"
        assert len(answer["x-request-id"]) == 32
        assert answer["cache-control"]
    assert code_of(ask(app, "GET", "/broken", headers=key)) == "internal"


class Stopped:
    """A predictor whose model waits until it may go on."""

    def __init__(self, predictor: Predictor) -> None:
        self.may_go_on, self.was_called = threading.Event(), threading.Event()
        self.predictor = copy.copy(predictor)
        self.predictor.run = self._run  # type: ignore[method-assign]  # a copy of our own
        self._model = predictor.run

    def _run(self, pixels: Sequence[Pixels]) -> Outputs:
        self.was_called.set()
        assert self.may_go_on.wait(60)
        return self._model(pixels)


def test_a_full_queue_refuses_at_once_and_empties(predictor: Predictor) -> None:
    stopped = Stopped(predictor)
    app = app_for(stopped.predictor, queue=2)

    async def scenario() -> None:
        async with client_of(app) as client:
            waiting = [
                asyncio.create_task(client.post("/v1/predict", content=RED)) for _ in range(2)
            ]
            while "scda_requests_in_progress 2.0" not in (await client.get("/metrics")).text:
                await asyncio.sleep(0.01)
            refused = await client.post("/v1/predict", content=RED)
            assert code_of(refused) == "overloaded"
            assert refused.headers["retry-after"] == "1"
            assert (await client.get("/v1/model")).status_code == 200
            stopped.may_go_on.set()
            assert [(await task).status_code for task in waiting] == [200, 200]
            assert (await client.post("/v1/predict", content=RED)).status_code == 200

    asyncio.run(scenario())


def test_a_single_image_does_not_wait_for_all_of_a_batch(predictor: Predictor) -> None:
    stopped, seen = Stopped(predictor), list[str]()
    run = stopped.predictor.run

    def record(pixels: Sequence[Pixels]) -> Outputs:
        seen.extend("blue" if image[0, 0, 2] > image[0, 0, 0] else "red" for image in pixels)
        return run(pixels)

    stopped.predictor.run = record  # type: ignore[method-assign]  # a copy of our own
    app = app_for(stopped.predictor, max_batch=1)

    async def scenario() -> None:
        async with client_of(app) as client:

            async def decoded(count: int) -> None:
                while f"scda_decode_seconds_count {count}.0" not in await metrics():
                    await asyncio.sleep(0.01)

            async def metrics() -> str:
                return (await client.get("/metrics")).text

            files = [("images", RED)] * 8
            large = asyncio.create_task(client.post("/v1/predict_batch", files=files))
            await decoded(8)
            small = asyncio.create_task(client.post("/v1/predict", content=picture("blue")))
            await decoded(9)
            queue = app.state.models.current._batcher._queue
            while len(queue) < 8:  # of the nine, one is in the model
                await asyncio.sleep(0.01)
            stopped.may_go_on.set()
            assert (await small).json()["label"] == "blue"
            assert (await large).status_code == 200

    asyncio.run(asyncio.wait_for(scenario(), 120))
    assert seen.index("blue") <= 3, seen  # one is in the model, and one may have been taken


def test_a_slow_answer_runs_out_of_time(predictor: Predictor) -> None:
    stopped = Stopped(predictor)
    app = app_for(stopped.predictor, timeout_seconds=0.1)
    assert code_of(predict(app, content=RED)) == "timeout"
    stopped.may_go_on.set()


def test_what_can_no_longer_be_answered_in_time_is_refused(
    predictor: Predictor, monkeypatch: pytest.MonkeyPatch
) -> None:
    began, may_end = threading.Event(), threading.Event()

    def prepare(*_: object) -> ImageError:
        began.set()
        assert may_end.wait(60)
        return ImageError("cannot_decode", "it took long")

    monkeypatch.setattr("scda.models.decoding.decoders.CostlyImages.prepare", prepare)
    app, costly = app_for(predictor, threads=1), encode(four(), "AVIF")

    async def scenario() -> None:
        async with client_of(app) as client:
            first = asyncio.create_task(client.post("/v1/predict", content=costly))
            assert await asyncio.to_thread(began.wait, 30)
            # Another one must begin within a tenth of a second from now on.
            monkeypatch.setattr("scda.serve.http.inference_queue._COSTLY_SHARE", 0.93)
            assert code_of(await client.post("/v1/predict", content=costly)) == "overloaded"
            may_end.set()
            await first

    asyncio.run(scenario())


def test_an_image_that_decodes_too_long_runs_out_of_time_and_holds_up_no_other(
    predictor: Predictor, monkeypatch: pytest.MonkeyPatch
) -> None:
    began, may_go_on, slow = threading.Event(), threading.Event(), picture("blue")

    def prepare(
        preprocessing: Preprocessing, files: Sequence[File], limits: ImageLimits
    ) -> list[Prepared | None]:
        if list(files) == [slow]:
            began.set()
            assert may_go_on.wait(60)
        return prepare_cheap(preprocessing, files, limits)

    monkeypatch.setattr("scda.serve.http.inference_queue.prepare_cheap", prepare)
    app = app_for(predictor, threads=2, timeout_seconds=60)

    async def scenario() -> None:
        async with client_of(app) as client:
            waiting = asyncio.create_task(client.post("/v1/predict", content=slow))
            assert await asyncio.to_thread(began.wait, 30)
            quick = await client.post("/v1/predict", content=RED)
            assert (quick.status_code, waiting.done()) == (200, False)
            may_go_on.set()
            assert (await waiting).status_code == 200

    try:
        impatient = app_for(predictor, timeout_seconds=0.1)
        assert code_of(predict(impatient, content=slow)) == "timeout"
        began.clear()
        asyncio.run(scenario())
    finally:
        may_go_on.set()


def test_a_client_that_goes_away_is_no_bug(app: FastAPI) -> None:
    started: list[int] = []

    async def receive() -> Message:
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        started.extend([message["status"]] if "status" in message else [])

    for kind in (b"image/jpeg", b"multipart/form-data; boundary=x"):
        scope = {"type": "http", "method": "POST", "path": "/v1/predict", "query_string": b""}
        headers = [(b"host", b"localhost"), (b"content-type", kind)]
        asyncio.run(app({**scope, "headers": headers}, receive, send))
    assert started == [400, 400]


def test_a_bug_is_a_500_that_tells_nothing(predictor: Predictor) -> None:
    broken = copy.copy(predictor)

    def fail(pixels: Sequence[Pixels]) -> Outputs:
        raise RuntimeError("secret")

    broken.run = fail  # type: ignore[method-assign]  # a copy of our own
    response = predict(app_for(broken), content=RED)
    assert response.status_code == 500
    assert response.json()["error"]["code"] == "internal"
    assert "secret" not in response.text


def test_new_names_are_picked_up_and_damaged_ones_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("scda.serve.http.served.watcher.INTERVAL_SECONDS", 0)
    folder = make_bundle(tmp_path / "bundle")
    app = app_for(load_predictor(folder, provider="cpu", threads=1))

    def label() -> tuple[str, int]:
        answer = predict(app, content=picture("yellow")).json()
        return answer["label"], answer["names_version"]

    assert label() == ("discovered-000", 0)
    (folder / NAMES).write_text(json.dumps({"version": 1, "labels": {"discovered-000": "sun"}}))
    assert label() == ("sun", 1)
    (folder / NAMES).write_text("{")
    assert label() == ("sun", 1)
    (folder / NAMES).write_text(json.dumps({"version": 2, "drops": ["discovered-000"]}))
    assert label() == ("unknown", 2)
    classes = ask(app, "GET", "/v1/model").json()["classes"]
    assert [c["answered_as"] for c in classes][3:] == ["unknown", "discovered-001"]
    (folder / NAMES).unlink()
    assert label() == ("discovered-000", 0)


def test_names_are_looked_at_once_a_second(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = make_bundle(tmp_path / "bundle")
    predictor = load_predictor(folder, provider="cpu", threads=1)
    now = 100.0
    monkeypatch.setattr("scda.serve.http.served.watcher.time.monotonic", lambda: now)
    watch = BundleWatcher(predictor, Metrics(tuple(STATUS)))
    watch.refresh()
    (folder / NAMES).write_text(json.dumps({"version": 7}))
    watch.refresh()
    assert predictor.names.version == 0
    now += 1
    watch.refresh()
    assert predictor.names.version == 7


def test_good_and_bad_at_once_are_told_apart(app: FastAPI) -> None:
    bodies = [RED, b"hello", picture("blue"), RED[:300], picture("cyan", kind="PNG")] * 6

    async def all_at_once() -> list[httpx.Response]:
        async with client_of(app) as client:
            posts = (client.post("/v1/predict", content=body) for body in bodies)
            return await asyncio.gather(*posts)

    said = [r.json().get("label") or code_of(r) for r in asyncio.run(all_at_once())]
    assert said == ["red", "not_an_image", "blue", "cannot_decode", "discovered-001"] * 6
