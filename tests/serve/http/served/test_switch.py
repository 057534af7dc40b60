import asyncio
import shutil
import threading
import weakref
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from scda.models.bundle import CLUSTERS, MODEL, NAMES, read_manifest
from scda.models.errors import GateError, UsageError
from scda.models.predictor import load_predictor
from scda.serve.http.served.switch import ModelSwitch
from tests.bundles import make_bundle, picture
from tests.serve.http.test_application import Stopped, app_for, ask, client_of, code_of

RED, D0 = picture("red"), "discovered-000"
FIRST, SECOND = "red", "crimson"  # what the two models call a red image


@pytest.fixture(scope="module")
def bundles(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two bundles whose answers tell which of them gave it."""
    root, targets = tmp_path_factory.mktemp("bundles"), {"a.jpg": "red"}
    second = ("azure", "lime", SECOND)
    return (
        make_bundle(root / "first", targets=targets),
        make_bundle(root / "second", targets={"b.jpg": "red"}, labels=second),
    )


@pytest.fixture
def folders(bundles: tuple[Path, Path], tmp_path: Path) -> tuple[Path, Path]:
    """Copies of the two bundles, to be damaged."""
    first, second = (shutil.copytree(one, tmp_path / one.name) for one in bundles)
    return first, second


def app_of(bundle: Path, **changes: Any) -> FastAPI:
    return app_for(load_predictor(bundle, provider="cpu", threads=1), **changes)


def models_of(app: FastAPI) -> ModelSwitch:
    models = app.state.models
    assert isinstance(models, ModelSwitch)
    return models


def run(app: FastAPI, steps: Callable[[httpx.AsyncClient, ModelSwitch], Awaitable[None]]) -> None:
    async def scenario() -> None:
        async with client_of(app) as client:
            await steps(client, models_of(app))

    asyncio.run(asyncio.wait_for(scenario(), 60))


async def label(client: httpx.AsyncClient) -> str:
    return str((await client.post("/v1/predict", content=RED)).json()["label"])


def test_the_other_bundle_answers_from_the_commit_on(bundles: tuple[Path, Path]) -> None:
    first, second = (read_manifest(one).id for one in bundles)

    async def steps(client: httpx.AsyncClient, models: ModelSwitch) -> None:
        assert await models.prepare(bundles[1]) == second
        assert await label(client) == FIRST
        models.commit(second)
        assert await label(client) == SECOND
        assert (await client.get("/v1/model")).json()["model_id"] == second
        near = (await client.post("/v1/nearest", content=RED)).json()
        assert (near["prediction"]["model_id"], near["images"][0]["path"]) == (second, "b.jpg")
        metrics = (await client.get("/metrics")).text
        assert f'scda_model_info{{model_id="{first}",provider="cpu"}} 0.0' in metrics
        assert f'scda_model_info{{model_id="{second}",provider="cpu"}} 1.0' in metrics

    run(app_of(bundles[0]), steps)


def test_a_request_ends_with_the_model_that_it_began_with(bundles: tuple[Path, Path]) -> None:
    stopped = Stopped(load_predictor(bundles[0], provider="cpu", threads=1))

    async def steps(client: httpx.AsyncClient, models: ModelSwitch) -> None:
        files = [("images", RED)] * 6
        near = asyncio.create_task(client.post("/v1/nearest", content=RED))
        batch = asyncio.create_task(client.post("/v1/predict_batch", files=files))
        await asyncio.to_thread(stopped.was_called.wait, 30)
        models.commit(await models.prepare(bundles[1]))
        assert await label(client) == SECOND
        stopped.may_go_on.set()
        first = read_manifest(bundles[0]).id
        answers = (await batch).json()["results"]
        assert {(one["label"], one["model_id"]) for one in answers} == {(FIRST, first)}
        answer = (await near).json()
        assert (answer["prediction"]["label"], answer["images"][0]["path"]) == (FIRST, "a.jpg")

    run(app_for(stopped.predictor), steps)


def test_a_replaced_model_is_freed_when_its_last_request_ends(bundles: tuple[Path, Path]) -> None:
    # Its references alone must free it: what is frozen is never looked through for circles.
    others = set(threading.enumerate())

    def model_threads() -> list[threading.Thread]:
        mine = set(threading.enumerate()) - others
        return [one for one in mine if one.name.startswith("scda-model")]

    async def steps(client: httpx.AsyncClient, models: ModelSwitch) -> None:
        assert await label(client) == FIRST
        (thread,), gone = model_threads(), weakref.ref(models.current.predictor)
        with models.pinned() as model:
            models.commit(await models.prepare(bundles[1]))
            assert gone() is model.predictor
            assert thread.is_alive()
            del model
        assert gone() is None
        await asyncio.to_thread(thread.join, 30)
        assert not thread.is_alive()
        assert await label(client) == SECOND

    run(app_of(bundles[0]), steps)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda folder: (folder / MODEL).write_bytes(b"x"), "model.onnx is damaged"),
        (lambda folder: (folder / CLUSTERS).unlink(), "clusters.faiss is missing"),
        (lambda folder: (folder / NAMES).write_text("{"), "names.json: damaged"),
        (lambda folder: shutil.rmtree(folder), "no such folder"),
    ],
)
def test_a_bundle_that_cannot_be_served_leaves_the_served_one(
    folders: tuple[Path, Path], damage: Callable[[Path], object], message: str
) -> None:
    first, second = folders
    damage(second)

    async def steps(client: httpx.AsyncClient, models: ModelSwitch) -> None:
        with pytest.raises((GateError, UsageError), match=message):
            await models.prepare(second)
        assert models.unready == ""
        with pytest.raises(UsageError, match="found none, expected 0123"):
            models.commit("0123")  # as if other workers could
        assert await label(client) == FIRST
        assert "expected 0123" in models.unready

    run(app_of(first), steps)


def test_what_is_discarded_while_it_is_loaded_is_not_kept(bundles: tuple[Path, Path]) -> None:
    async def steps(client: httpx.AsyncClient, models: ModelSwitch) -> None:
        loading = asyncio.create_task(models.prepare(bundles[1]))
        await asyncio.sleep(0)
        models.discard()
        with pytest.raises(UsageError, match="was discarded before it was loaded"):
            await loading
        assert models._prepared is None

    run(app_of(bundles[0]), steps)


def test_what_is_discarded_is_not_served(bundles: tuple[Path, Path]) -> None:
    async def steps(client: httpx.AsyncClient, models: ModelSwitch) -> None:
        prepared = await models.prepare(bundles[1])
        with pytest.raises(UsageError, match=f"found {prepared}, expected {models.current.id}"):
            models.commit(models.current.id)
        models.discard()
        with pytest.raises(UsageError, match=f"found none, expected {prepared}"):
            models.commit(prepared)
        assert await label(client) == FIRST

    run(app_of(bundles[0]), steps)


def test_under_load_every_answer_is_wholly_one_models(bundles: tuple[Path, Path]) -> None:
    ids = [read_manifest(one).id for one in bundles]
    labels, paths = dict(zip(ids, (FIRST, SECOND), strict=True)), dict(zip(ids, "ab", strict=True))
    seen: set[str] = set()

    def check(prediction: dict[str, Any]) -> str:
        model_id = str(prediction["model_id"])
        assert prediction["label"] == labels[model_id]
        assert prediction["label"] in {one["label"] for one in prediction["nearest"]}
        seen.add(model_id)
        return model_id

    async def steps(client: httpx.AsyncClient, models: ModelSwitch) -> None:
        done = asyncio.Event()

        async def ask_on() -> None:
            while not done.is_set():
                check((await client.post("/v1/predict", content=RED)).json())
                near = (await client.post("/v1/nearest", content=RED)).json()
                assert near["images"][0]["path"] == paths[check(near["prediction"])] + ".jpg"
                files = [("images", RED)] * 3
                batch = (await client.post("/v1/predict_batch", files=files)).json()["results"]
                assert len({check(one) for one in batch}) == 1

        clients = [asyncio.create_task(ask_on()) for _ in range(4)]
        for number in range(1, 9):
            models.commit(await models.prepare(bundles[number % 2]))
        done.set()
        await asyncio.gather(*clients)
        assert seen == set(ids)

    run(app_of(bundles[0], threads=2), steps)


def test_the_exemplars_are_those_that_were_verified(folders: tuple[Path, Path]) -> None:
    app, address = app_of(folders[0]), f"/v1/exemplars/{D0}/0"
    before = ask(app, "GET", address)
    exemplar = folders[0] / "exemplars" / D0 / "0.jpg"
    exemplar.write_bytes(picture("cyan"))
    assert ask(app, "GET", address).content == before.content == picture("yellow")
    shutil.rmtree(folders[0])
    after = ask(app, "GET", address)
    assert (after.status_code, after.content) == (200, before.content)
    assert after.headers["etag"] == before.headers["etag"]


def test_an_address_of_the_earlier_model_shows_no_image_of_the_later_one(
    bundles: tuple[Path, Path],
) -> None:
    async def steps(client: httpx.AsyncClient, models: ModelSwitch) -> None:
        async def addresses() -> list[str]:
            answer = (await client.post("/v1/nearest", content=RED)).json()
            return [one for near in answer["classes"] for one in near["exemplars"]]

        earlier, earlier_id = await addresses(), models.current.id
        shown = await client.get(earlier[0])
        assert shown.status_code == 200
        assert "immutable" in shown.headers["cache-control"]
        models.commit(await models.prepare(bundles[1]))
        later = await addresses()
        assert len(later) == len(earlier)
        for address in earlier:
            refused = await client.get(address, headers={"If-None-Match": shown.headers["etag"]})
            assert code_of(refused) == "not_found"
            message = refused.json()["error"]["message"]
            assert earlier_id in message
            assert models.current.id in message
            assert (await client.get(address.partition("?")[0])).status_code == 200
        for address in later:
            assert (await client.get(address)).status_code == 200
        models.commit(await models.prepare(bundles[0]))
        assert (await client.get(earlier[0])).content == shown.content

    run(app_of(bundles[0]), steps)


def test_one_request_has_one_set_of_names(bundles: tuple[Path, Path]) -> None:
    stopped = Stopped(load_predictor(bundles[0], provider="cpu", threads=1))
    predictor = stopped.predictor
    names = predictor.names

    async def steps(client: httpx.AsyncClient, models: ModelSwitch) -> None:
        files = [("images", RED)] * 3
        batch = asyncio.create_task(client.post("/v1/predict_batch", files=files))
        await asyncio.to_thread(stopped.was_called.wait, 30)
        predictor.rename(type(names)(version=5, labels={"known-002": "scarlet"}))
        later = asyncio.create_task(client.post("/v1/predict", content=RED))
        stopped.may_go_on.set()
        answers = (await batch).json()["results"]
        assert {(one["label"], one["names_version"]) for one in answers} == {(FIRST, 0)}
        assert (await later).json()["label"] == "scarlet"

    run(app_for(predictor, max_batch=1, threads=1), steps)
