import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI

from scda.models.bundle import MANIFEST, NAMES, read_manifest
from scda.models.errors import GateError
from scda.models.predictor import load_predictor
from scda.serve.http.application import load_app
from scda.serve.http.settings import Settings
from tests.bundles import make_bundle, picture
from tests.serve.http.test_application import app_for, ask, predict
from tests.serve.http.test_metrics import samples

D0 = "discovered-000"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make_bundle(tmp_path / "bundle")


@pytest.fixture
def app(folder: Path, monkeypatch: pytest.MonkeyPatch) -> FastAPI:
    """An application that looks at the files before every answer, and calls yellow `sun`."""
    monkeypatch.setattr("scda.serve.http.served.watcher.INTERVAL_SECONDS", 0)
    write(folder, version=3, labels={D0: "sun"})
    return app_for(load_predictor(folder, provider="cpu", threads=1))


def write(folder: Path, **fields: Any) -> None:
    (folder / NAMES).write_text(json.dumps(fields))


def answer(app: FastAPI) -> tuple[str, int]:
    body = predict(app, content=picture("yellow")).json()
    return body["label"], body["names_version"]


def gauges(app: FastAPI) -> tuple[float, ...]:
    found = samples(app)
    return tuple(
        found[f"scda_{name}{{}}"] for name in ("names_version", "names_refused", "bundle_replaced")
    )


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", "damaged"),
        ('{"version": 9, "model_id": "0123456789abcdef"}', "names of the model '0123456789abcdef'"),
        ('{"version": 9, "drops": ["known-099"]}', "no class known-099"),
    ],
)
def test_names_that_are_refused_leave_the_last_good_ones_and_show_in_log_and_metrics(
    app: FastAPI, folder: Path, caplog: pytest.LogCaptureFixture, text: str, why: str
) -> None:
    assert answer(app) == ("sun", 3)
    assert gauges(app) == (3, 0, 0)
    (folder / NAMES).write_text(text)
    assert [answer(app) for _ in range(3)] == [("sun", 3)] * 3
    assert gauges(app) == (3, 1, 0)
    (line,) = [record.getMessage() for record in caplog.records]
    assert "version 3 stays in use; a restart would fail" in line
    assert why in line
    with pytest.raises(
        GateError, match=r"names\.json: .*restore the file from a copy, or delete it"
    ):
        load_app(Settings(bundle=folder, threads=1))
    write(folder, version=4)
    assert answer(app) == (D0, 4)
    assert gauges(app) == (4, 0, 0)


@pytest.mark.parametrize("gone", [False, True])
def test_a_bundle_that_is_replaced_or_vanishes_changes_no_answer(
    app: FastAPI, folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, gone: bool
) -> None:
    before = [answer(app), ask(app, "GET", "/v1/model").json()]
    away = tmp_path / "away"
    folder.rename(away)
    if not gone:
        other = make_bundle(folder, labels=("azure", "lime", "crimson"))
        write(other, version=8, labels={D0: "seven"})  # fits, and says no model
    assert [answer(app), ask(app, "GET", "/v1/model").json()] == before
    assert gauges(app) == (3, 0, 1)
    (line,) = [record.getMessage() for record in caplog.records]
    assert "the bundle was replaced" in line
    assert before[1]["model_id"] in line
    if not gone:
        shutil.rmtree(folder)
    away.rename(folder)
    write(folder, version=4, labels={D0: "star"})
    assert answer(app) == ("star", 4)
    assert gauges(app) == (4, 0, 0)


def test_names_that_change_between_loading_and_serving_are_seen(folder: Path) -> None:
    predictor = load_predictor(folder, provider="cpu", threads=1)
    write(folder, version=3, labels={D0: "sun"})
    assert answer(app_for(predictor)) == ("sun", 3)


def test_a_copy_of_the_same_manifest_is_the_same_bundle(app: FastAPI, folder: Path) -> None:
    assert answer(app) == ("sun", 3)
    text = (folder / MANIFEST).read_bytes()
    (folder / MANIFEST).unlink()
    (folder / MANIFEST).write_bytes(text)
    write(folder, version=4)
    assert answer(app) == (D0, 4)


def test_a_worker_refuses_to_start_with_another_model_than_the_others(folder: Path) -> None:
    found = read_manifest(folder).id
    load_app(Settings(bundle=folder, threads=1, model_id=found))
    with pytest.raises(GateError, match=f"found the model {found}, expected 0123456789abcdef"):
        load_app(Settings(bundle=folder, threads=1, model_id="0123456789abcdef"))


def test_a_link_is_followed_once(folder: Path, tmp_path: Path) -> None:
    current = tmp_path / "current"
    current.symlink_to(folder)
    app = load_app(Settings(bundle=current, threads=1))
    current.unlink()
    assert app.state.models.current.predictor.folder == folder
    assert gauges(app) == (0, 0, 0)
