import asyncio
import threading

import httpx
import pytest

from scda.models.decoding.decoders import CostlyImages
from scda.models.decoding.limits import ProcessLimits
from scda.models.errors import ImageError
from scda.models.predictor import Predictor
from tests.serve.http.test_application import app_for


@pytest.mark.parametrize(("processes", "of_one"), [(3, 2), (1, 1)])
def test_the_costly_images_of_one_client_leave_a_process_to_others(
    predictor: Predictor, monkeypatch: pytest.MonkeyPatch, *, processes: int, of_one: int
) -> None:
    begun, may_end = list[bytes](), threading.Event()

    def prepare(images: CostlyImages, preprocessing: object, data: bytes) -> ImageError:
        begun.append(data)
        assert may_end.wait(60)
        return ImageError("cannot_decode", "an image of the test")

    module = "scda.serve.http.inference_queue"
    monkeypatch.setattr(f"{module}.prepare_cheap", lambda *arguments: [None])  # all are costly
    monkeypatch.setattr(CostlyImages, "prepare", prepare)
    monkeypatch.setattr(ProcessLimits, "at_once", lambda limits, most: min(most, processes))
    app = app_for(predictor, threads=2)

    def client_at(address: str) -> httpx.AsyncClient:
        transport = httpx.ASGITransport(app, client=(address, 1))
        return httpx.AsyncClient(transport=transport, base_url="http://localhost")

    async def until(count: int) -> None:
        while len(begun) < count:
            await asyncio.sleep(0.001)

    async def scenario() -> None:
        async with client_at("10.0.0.1") as greedy, client_at("10.0.0.2") as other:
            files = [("images", b"many")] * 6
            batch = asyncio.create_task(greedy.post("/v1/predict_batch", files=files))
            await until(of_one)
            one = asyncio.create_task(other.post("/v1/predict", content=b"one"))
            if processes > 1:
                await until(of_one + 1)
                assert begun == [b"many"] * of_one + [b"one"]
            may_end.set()
            assert (await one).status_code == 422
            assert len((await batch).json()["results"]) == 6

    asyncio.run(asyncio.wait_for(scenario(), 60))
