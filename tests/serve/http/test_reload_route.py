import asyncio
from pathlib import Path

import pytest
from fastapi import FastAPI

from scda.models.bundle import read_manifest
from scda.models.predictor import Predictor
from scda.serve.http.application import create_app
from scda.serve.http.settings import Settings
from tests.bundles import make_bundle
from tests.serve.http.test_application import RED, ask, client_of, code_of

KEY = {"Authorization": "Bearer key"}
ROUTE = "/v1/admin/reload"


@pytest.fixture
def current(bundle: Path, tmp_path: Path) -> Path:
    """A link to a bundle, as a server is started with."""
    link = tmp_path / "current"
    link.symlink_to(bundle)
    return link


@pytest.fixture
def app(predictor: Predictor, current: Path) -> FastAPI:
    async def reload() -> str:
        models = application.state.models
        model_id = str(await models.prepare(current))
        models.commit(model_id)
        return model_id

    settings = Settings(bundle=current, threads=1, api_key="key")
    application = create_app(predictor, settings, reload=reload)
    return application


def test_what_the_link_shows_now_is_served(app: FastAPI, current: Path, tmp_path: Path) -> None:
    other = make_bundle(tmp_path / "other", labels=("azure", "lime", "crimson"))
    before, after = read_manifest(current).id, read_manifest(other).id

    async def scenario() -> None:
        async with client_of(app) as client:
            current.unlink()
            current.symlink_to(other)
            assert (await client.get("/v1/model", headers=KEY)).json()["model_id"] == before
            told = await client.post(ROUTE, headers=KEY)
            assert told.json() == {"model_id": after, "previous_model_id": before}
            answer = await client.post("/v1/predict", content=RED, headers=KEY)
            assert (answer.json()["label"], answer.json()["model_id"]) == ("crimson", after)

    asyncio.run(scenario())


def test_a_bundle_that_cannot_be_served_is_told_and_the_old_one_stays(
    app: FastAPI, current: Path, tmp_path: Path
) -> None:
    current.unlink()
    current.symlink_to(tmp_path / "nowhere")
    refused = ask(app, "POST", ROUTE, headers=KEY)
    assert code_of(refused) == "not_reloaded"
    assert "no such folder; expected a bundle or a run" in refused.json()["error"]["message"]
    told = ask(app, "GET", "/v1/model", headers=KEY).json()["model_id"]
    assert told == app.state.models.current.id


def test_it_needs_the_key_and_a_server_without_one_has_no_such_route(
    app: FastAPI, predictor: Predictor, current: Path
) -> None:
    assert code_of(ask(app, "POST", ROUTE)) == "unauthorized"
    assert code_of(ask(app, "GET", ROUTE, headers=KEY)) == "method_not_allowed"

    async def reload() -> str:
        raise AssertionError

    open_to_all = create_app(predictor, Settings(bundle=current, threads=1), reload=reload)
    assert code_of(ask(open_to_all, "POST", ROUTE)) == "not_found"
    alone = create_app(predictor, Settings(bundle=current, threads=1, api_key="key"))
    assert code_of(ask(alone, "POST", ROUTE, headers=KEY)) == "not_found"
