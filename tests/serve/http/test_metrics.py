import asyncio
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi import FastAPI
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families
from starlette.types import Message

from scda.models.bundle import NAMES
from scda.models.predictor import Predictor, load_predictor
from scda.models.target_figures import TargetFigures
from scda.serve.http.errors import STATUS
from tests.bundles import make_bundle, picture
from tests.serve.http.test_application import (
    RED,
    Stopped,
    app_for,
    ask,
    client_of,
    code_of,
    expected,
    predict,
)


@pytest.fixture
def app(predictor: Predictor) -> FastAPI:
    return app_for(predictor, max_pixels=1_000_000)


def samples(app: FastAPI) -> dict[str, float]:
    """Return the value of every series, by its name with its labels."""
    return dict(parsed(ask(app, "GET", "/metrics").text))


def parsed(text: str) -> Iterator[tuple[str, float]]:
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = ",".join(f"{name}={value}" for name, value in sorted(sample.labels.items()))
            yield f"{sample.name}{{{labels}}}", sample.value


def test_images_are_counted_by_what_was_answered(app: FastAPI, predictor: Predictor) -> None:
    for colour in ("red", "red", "cyan"):
        assert predict(app, content=picture(colour)).status_code == 200
    counted = samples(app)
    for colour, times in (("red", 2), ("cyan", 1)):
        said = expected(predictor, picture(colour))
        outlier = str(said["outlier"]).lower()
        assert counted[f"scda_images_total{{kind={said['kind']},outlier={outlier}}}"] == times
    assert sum(v for k, v in counted.items() if k.startswith("scda_images_total")) == 3


def test_classes_and_confidence_are_counted(app: FastAPI) -> None:
    for colour in ("red", "red", "cyan"):
        confidence = predict(app, content=picture(colour)).json()["confidence"]
    counted = samples(app)
    assert counted["scda_class_images_total{class_id=known-002}"] == 2
    assert counted["scda_class_images_total{class_id=discovered-001}"] == 1
    assert counted["scda_confidence_count{}"] == 3
    assert counted["scda_confidence_sum{}"] >= confidence
    assert counted["scda_resident_memory_bytes{}"] > 10_000_000


def test_what_is_in_progress_is_shown_and_ends(predictor: Predictor) -> None:
    stopped = Stopped(predictor)
    app = app_for(stopped.predictor)

    async def scenario() -> None:
        async with client_of(app) as client:

            async def shown() -> tuple[float, float]:
                values = dict(parsed((await client.get("/metrics")).text))
                names = ("scda_requests_in_progress{}", "scda_images_in_progress{}")
                return values[names[0]], values[names[1]]

            files = [("images", RED)] * 3
            task = asyncio.create_task(client.post("/v1/predict_batch", files=files))
            while await shown() != (1, 3):
                await asyncio.sleep(0.01)
            stopped.may_go_on.set()
            assert (await task).status_code == 200
            assert await shown() == (0, 0)

    asyncio.run(asyncio.wait_for(scenario(), 60))


def test_the_figures_of_the_target_are_shown_under_the_names_in_use(tmp_path: Path) -> None:
    figures = TargetFigures(images=40, outlier_share=0.025, mean_confidence=0.9)
    folder = make_bundle(tmp_path / "bundle", on_target=figures)
    names = {"version": 1, "merges": {"discovered-001": "discovered-000"}, "drops": ["known-000"]}
    (folder / NAMES).write_text(json.dumps(names))
    predictor = load_predictor(folder, provider="cpu", threads=1)
    shown = samples(app_for(predictor))
    model = predictor.manifest.id
    assert shown[f"scda_expected_outlier_share{{model_id={model}}}"] == 0.025
    assert shown[f"scda_expected_confidence{{model_id={model}}}"] == 0.9
    # The classes have 10, 9, 8, 7 and 6 images.
    shares = {"unknown": 10 / 40, "known-001": 9 / 40, "known-002": 8 / 40}
    shares["discovered-000"] = 13 / 40
    assert {k: v for k, v in shown.items() if "expected_class" in k} == {
        f"scda_expected_class_share{{class_id={name}}}": pytest.approx(share)
        for name, share in shares.items()
    }


def test_a_bundle_without_figures_shows_none(app: FastAPI) -> None:
    assert not [name for name in samples(app) if "expected" in name]


def test_a_dropped_class_counts_as_unknown(tmp_path: Path) -> None:
    folder = make_bundle(tmp_path / "bundle")
    (folder / NAMES).write_text(json.dumps({"version": 7, "drops": ["discovered-000"]}))
    app = app_for(load_predictor(folder, provider="cpu", threads=1))
    assert predict(app, content=picture("yellow")).json()["kind"] == "unknown"
    counted = samples(app)
    assert sum(v for k, v in counted.items() if "kind=unknown" in k and "total" in k) == 1
    assert counted["scda_names_version{}"] == 7


def test_errors_are_counted_by_code_also_inside_a_batch(app: FastAPI) -> None:
    assert code_of(predict(app, content=b"hello")) == "not_an_image"
    assert code_of(ask(app, "GET", "/nowhere")) == "not_found"
    files = [("images", RED), ("images", b"hello"), ("images", b"")]
    assert ask(app, "POST", "/v1/predict_batch", files=files).status_code == 200
    counted = samples(app)
    codes = {code: counted[f"scda_errors_total{{code={code}}}"] for code in STATUS}
    seen = {"not_an_image": 2, "not_found": 1, "empty": 1}
    assert codes == dict.fromkeys(STATUS, 0) | seen


def test_a_bug_is_timed_as_every_answer_is(app: FastAPI) -> None:
    @app.get("/broken")
    async def broken() -> None:
        raise RuntimeError("a bug")

    assert code_of(ask(app, "GET", "/broken")) == "internal"
    assert samples(app)["scda_request_seconds_count{route=/broken,status=500}"] == 1


def test_stages_are_timed_and_batches_measured(app: FastAPI) -> None:
    before = samples(app)
    files = [("images", RED)] * 5 + [("images", b"hello")]
    assert ask(app, "POST", "/v1/predict_batch", files=files).status_code == 200
    counted = {name: value - before[name] for name, value in samples(app).items() if name in before}
    assert counted["scda_queue_wait_seconds_count{stage=decode}"] == 6
    assert counted["scda_decode_seconds_count{}"] == 6  # also where it fails
    assert counted["scda_queue_wait_seconds_count{stage=model}"] == 5
    assert counted["scda_batch_images_sum{}"] == 5
    calls = counted["scda_batch_images_count{}"]
    assert 1 <= calls == counted["scda_inference_seconds_count{}"]
    for stage in ("decode", "inference"):
        assert 0 < counted[f"scda_{stage}_seconds_sum{{}}"] < 5


def test_requests_are_timed_by_route_and_status(app: FastAPI) -> None:
    predict(app, content=RED)
    predict(app, content=b"hello")
    ask(app, "DELETE", "/v1/predict")
    ask(app, "GET", "/v1/model")
    counted = samples(app)
    for labels in ("/v1/predict,status=200", "/v1/predict,status=415", "/v1/model,status=200"):
        assert counted[f"scda_request_seconds_count{{route={labels}}}"] == 1
    assert 0 < counted["scda_request_seconds_sum{route=/v1/predict,status=200}"] < 10


def test_it_says_what_answers(app: FastAPI, predictor: Predictor) -> None:
    model = f"scda_model_info{{model_id={predictor.manifest.id},provider=cpu}}"
    assert samples(app)[model] == 1


def test_applications_in_one_process_count_for_themselves(predictor: Predictor) -> None:
    first, second = app_for(predictor), app_for(predictor)
    predict(first, content=b"hello")
    name = "scda_errors_total{code=not_an_image}"
    assert (samples(first)[name], samples(second)[name]) == (1, 0)


METHODS = st.sampled_from(["GET", "POST", "BREW", "get", "OPTIONS"]) | st.text("ABC-", min_size=1)
PATHS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


def send(app: FastAPI, method: str, path: str, header: bytes) -> int:
    """Send what no HTTP client would, and return the status."""
    started: list[int] = []

    async def receive() -> Message:
        return {"type": "http.request", "body": b"hello"}

    async def take(message: Message) -> None:
        started.extend([message["status"]] if "status" in message else [])

    names = (b"authorization", b"content-type", b"host")
    scope = {"type": "http", "method": method, "path": path, "query_string": header}
    asyncio.run(app({**scope, "headers": [(name, header) for name in names]}, receive, take))
    return started[0]


def test_nothing_that_is_sent_becomes_a_label(app: FastAPI) -> None:
    routes = {getattr(route, "path", None) for route in app.routes} | {"other"}
    names = set(samples(app))

    @settings(max_examples=100, deadline=None)
    @given(method=METHODS, path=PATHS, header=st.binary(max_size=20))
    def send_anything(method: str, path: str, header: bytes) -> None:
        assert send(app, method, "/" + path, header) < 500

    send_anything()
    new = {name for name in samples(app) if name not in names and "_created" not in name}
    assert new
    for name in new:  # none but the series of the routes and statuses that were met
        labels = re.fullmatch(r"scda_request_seconds_\w+{(?:le=.*,)?route=(.*),status=(\d+)}", name)
        assert labels, name
        assert labels[1] in routes
        assert int(labels[2]) in {200, *STATUS.values()}


def test_the_metrics_want_the_key_unless_they_are_public(predictor: Predictor) -> None:
    async def ask_both(app: FastAPI) -> tuple[int, int]:
        async with client_of(app) as client:
            metrics, model = await client.get("/metrics"), await client.get("/v1/model")
            return metrics.status_code, model.status_code

    assert asyncio.run(ask_both(app_for(predictor, api_key="key"))) == (401, 401)
    public = app_for(predictor, api_key="key", public_metrics=True)
    assert asyncio.run(ask_both(public)) == (200, 401)
    headers = {"Authorization": "Bearer key"}
    closed = ask(app_for(predictor, api_key="key"), "GET", "/metrics", headers=headers)
    assert "scda_model_info" in closed.text
    assert closed.headers["content-type"].startswith("text/plain")
