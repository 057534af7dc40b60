import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

from scda.models.predictor import Predictor
from scda.serve.http.application import create_app
from scda.serve.http.settings import Settings
from tests.bundles import picture
from tests.serve.http.test_application import client_of


def test_a_request_that_began_before_the_stop_ends_its_connection_in_words(
    predictor: Predictor, bundle: Path
) -> None:
    """Otherwise the client sends its next request into a connection that is being closed."""

    async def check() -> None:
        app, image = create_app(predictor, Settings(bundle=bundle, threads=1)), picture("red")

        async def body() -> AsyncIterator[bytes]:
            yield image[:100]
            app.state.drain.begin()
            yield image[100:]

        async with client_of(app) as client:
            before = await client.post("/v1/predict", content=image)
            during = await client.post("/v1/predict", content=body())
            assert (before.status_code, during.status_code) == (200, 200)
            assert "connection" not in before.headers
            assert during.headers["connection"] == "close"

    asyncio.run(check())
