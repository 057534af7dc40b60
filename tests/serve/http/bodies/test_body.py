"""How long a body may take to arrive, and how much memory all of them may take."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from scda.models.predictor import Predictor
from tests.bundles import picture
from tests.serve.http.test_application import app_for, ask, client_of, code_of

RED = picture("red")


@pytest.fixture
def discards_little(monkeypatch: pytest.MonkeyPatch) -> None:
    """An upload that is refused is not waited for."""
    monkeypatch.setattr("scda.serve.http.requests.exchange._DISCARD_SECONDS", 0.01)


@pytest.mark.usefixtures("discards_little")
@pytest.mark.parametrize(
    ("path", "kind", "begin"),
    [
        ("/v1/predict", "image/jpeg", RED[:10]),
        ("/v1/nearest", "application/json", b'{"image": "AAAA'),
        ("/v1/predict_batch", "multipart/form-data; boundary=x", b"--x\r\n"),
    ],
)
def test_a_slow_body_runs_out_of_time_and_is_the_clients_fault(
    predictor: Predictor, path: str, kind: str, begin: bytes
) -> None:
    async def slow() -> AsyncIterator[bytes]:
        yield begin
        await asyncio.Event().wait()

    app = app_for(predictor, upload_seconds=0.1)
    answer = ask(app, "POST", path, content=slow(), headers={"Content-Type": kind})
    assert code_of(answer) == "request_timeout"
    assert answer.headers["connection"] == "close"


def test_slow_bodies_take_no_place_in_the_queue(predictor: Predictor) -> None:
    app, arriving = app_for(predictor, queue=2), asyncio.Event()

    async def slow() -> AsyncIterator[bytes]:
        yield RED[:10]
        await arriving.wait()
        yield RED[10:]

    async def scenario() -> None:
        async with client_of(app) as client:
            posts = [client.post("/v1/predict", content=slow()) for _ in range(3)]
            uploads = [asyncio.create_task(post) for post in posts]
            while "scda_body_bytes 30.0" not in (await client.get("/metrics")).text:
                await asyncio.sleep(0.01)
            for _ in range(3):
                assert (await client.post("/v1/predict", content=RED)).status_code == 200
            arriving.set()
            statuses = sorted([(await upload).status_code for upload in uploads])
            assert statuses == [200, 200, 429]  # they ended at the same moment
            assert "scda_body_bytes 0.0" in (await client.get("/metrics")).text

    asyncio.run(scenario())


@pytest.mark.usefixtures("discards_little")
def test_the_bodies_of_all_requests_together_are_bounded(predictor: Predictor) -> None:
    """Ten uploads of half the limit each, which wait for their last byte."""
    app, last = app_for(predictor, max_bytes=200_000, max_held_bytes=1), asyncio.Event()

    async def slow() -> AsyncIterator[bytes]:
        yield bytes(120_000)
        await last.wait()
        yield b"x"

    async def scenario() -> None:
        async with client_of(app) as client:
            posts = [client.post("/v1/predict", content=slow()) for _ in range(10)]
            uploads = [asyncio.create_task(post) for post in posts]
            while sum(upload.done() for upload in uploads) < 7:
                await asyncio.sleep(0.01)
            for refused in [upload.result() for upload in uploads if upload.done()]:
                assert code_of(refused) == "unavailable"
                assert "fill the 400,000 bytes" in refused.json()["error"]["message"]
                assert refused.headers["retry-after"] == "1"
            # What is small still fits.
            assert (await client.post("/v1/predict", content=RED)).status_code == 200
            last.set()
            codes = [code_of(await upload) for upload in uploads]
            assert sorted(codes) == ["not_an_image"] * 3 + ["unavailable"] * 7
            assert (await client.post("/v1/predict", content=RED)).status_code == 200

    asyncio.run(scenario())
