import asyncio
import dataclasses
import json
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from fastapi import FastAPI
from numpy.typing import NDArray

from scda.models.bundle import NAMES, NEIGHBOURS, file_sha256, read_manifest
from scda.models.errors import GateError
from scda.models.index import build_index, write_index
from scda.models.names import Names
from scda.models.predictor import Predictor, load_predictor
from scda.serve.http.served.exemplars import Exemplars
from scda.serve.http.served.target_index import COUNT, TargetIndex, open_target_index
from tests.bundles import make_bundle, picture
from tests.serve.http.test_application import app_for, ask, code_of, expected

RED, D0, D1 = picture("red"), "discovered-000", "discovered-001"
TARGETS = {"a/red.jpg": "red", "sun.png": "yellow", "sea.jpg": "cyan", "grass.jpg": "green"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make_bundle(tmp_path / "bundle", targets=TARGETS)


@pytest.fixture(scope="module")
def app(predictor: Predictor) -> FastAPI:
    return app_for(predictor, max_bytes=100_000, max_pixels=1_000_000)


def app_of(folder: Path, **changes: Any) -> FastAPI:
    return app_for(load_predictor(folder, provider="cpu", threads=1), **changes)


def nearest(app: FastAPI, data: bytes) -> dict[str, Any]:
    response = ask(app, "POST", "/v1/nearest", content=data)
    assert response.status_code == 200, response.text
    return dict(response.json())


def test_the_classes_are_those_of_the_prediction_with_their_pictures(folder: Path) -> None:
    predictor = load_predictor(folder, provider="cpu", threads=1)
    app = app_for(predictor)
    answer = nearest(app, RED)
    assert answer["prediction"] == expected(predictor, RED)
    first = answer["classes"][0]
    assert first == {
        "class_id": "known-002",
        "label": "red",
        "kind": "known",
        "distance": pytest.approx(0, abs=1e-3),
        "exemplars": [f"/v1/exemplars/known-002/0?model={predictor.manifest.id}"],
    }
    fields = ("class_id", "label", "distance")
    said = [{name: near[name] for name in fields} for near in answer["classes"]]
    assert said == answer["prediction"]["nearest"]
    form = ask(app, "POST", "/v1/nearest", files={"image": ("x.jpg", RED)})
    assert form.json() == answer


def test_the_images_are_paths_and_distances_nearest_first(folder: Path) -> None:
    # In features red is (.5, -.5, -.5): by hand its cosine is 1/3 to yellow and to green's -1/3.
    images = nearest(app_of(folder), RED)["images"]
    assert [set(image) for image in images] == [{"path", "distance"}] * 4
    assert [image["path"] for image in images] == ["a/red.jpg", "sun.png", "grass.jpg", "sea.jpg"]
    wanted = pytest.approx([0, 2 / 3, 4 / 3, 2], abs=5e-3)
    assert [image["distance"] for image in images] == wanted


def test_of_many_images_a_few_are_said(tmp_path: Path) -> None:
    folder = make_bundle(tmp_path / "bundle", targets={f"{n}.jpg": "red" for n in range(30)})
    assert len(nearest(app_of(folder), RED)["images"]) == COUNT


def test_without_neighbours_no_image_is_said(tmp_path: Path) -> None:
    for name, targets in (("without", None), ("empty", {})):
        folder = make_bundle(tmp_path / name, targets=targets)
        answer = nearest(app_of(folder), RED)
        assert (answer["images"], len(answer["classes"])) == ([], 5)


def test_names_are_applied(folder: Path) -> None:
    says = {"labels": {D1: "sky"}, "merges": {D0: "known-002"}, "drops": ["known-000"]}
    (folder / NAMES).write_text(json.dumps({"version": 3, **says}))
    answer = nearest(app_of(folder), picture("yellow"))
    assert answer["prediction"]["class_id"] == "known-002"
    near = {entry["class_id"]: entry for entry in answer["classes"]}
    assert set(near) == {"known-001", "known-002", D1, "unknown"}
    assert near["known-002"]["distance"] == pytest.approx(0, abs=1e-3)  # yellow's own centroid
    paths = [address.partition("?")[0] for address in near["known-002"]["exemplars"]]
    assert paths == [f"/v1/exemplars/{i}/0" for i in ("known-002", D0)]
    assert (near[D1]["label"], near[D1]["kind"]) == ("sky", "discovered")
    assert (near["unknown"]["label"], near["unknown"]["kind"]) == ("unknown", "unknown")


def test_a_renaming_in_between_does_not_mix_names(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    predictor = load_predictor(folder, provider="cpu", threads=1)
    search = TargetIndex.nearest

    def renamed_meanwhile(self: TargetIndex, features: NDArray[np.float32]) -> Any:
        predictor.rename(Names(version=9, merges={"known-002": D1}))
        return search(self, features)

    monkeypatch.setattr(TargetIndex, "nearest", renamed_meanwhile)
    answer = nearest(app_for(predictor), RED)
    assert answer["prediction"]["names_version"] == 0
    assert answer["classes"][0]["exemplars"][0].startswith("/v1/exemplars/known-002/0?")


def test_a_merged_class_shows_its_own_pictures_first(bundle: Path) -> None:
    manifest = read_manifest(bundle)
    exemplars, merged = Exemplars(bundle, manifest), Names(version=1, merges={"known-000": D1})
    assert exemplars.addresses(D1, merged) == tuple(
        f"/v1/exemplars/{class_id}/0?model={manifest.id}" for class_id in (D1, "known-000")
    )
    assert exemplars.addresses("known-000", merged) == ()


@pytest.mark.parametrize(
    ("content", "code"),
    [
        ({"content": b""}, "empty"),
        ({"content": b"hello"}, "not_an_image"),
        ({"content": RED[:300]}, "cannot_decode"),
        ({"content": picture("red", size=(2000, 1000), kind="PNG")}, "too_many_pixels"),
        ({"content": b"\xff" * 100_001}, "too_many_bytes"),
        ({"files": {"other": RED}}, "bad_request"),
        ({"files": [("image", RED), ("image", RED)]}, "too_many_files"),
    ],
)
def test_a_bad_image_has_the_code_that_predict_gives(
    app: FastAPI, content: dict[str, Any], code: str
) -> None:
    assert code_of(ask(app, "POST", "/v1/nearest", **content)) == code
    assert code_of(ask(app, "POST", "/v1/predict", **content)) == code


def test_it_waits_in_the_same_queue(bundle: Path) -> None:
    app = app_of(bundle, queue=2)

    async def three() -> list[httpx.Response]:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            routes = ("/v1/predict", "/v1/nearest", "/v1/nearest")
            return await asyncio.gather(*(client.post(route, content=RED) for route in routes))

    first, second, third = asyncio.run(three())
    assert (first.status_code, second.status_code) == (200, 200)
    assert code_of(third) == "overloaded"


def test_neighbours_that_do_not_fit_stop_the_start(folder: Path) -> None:
    manifest = read_manifest(folder)
    with pytest.raises(GateError, match="vectors have 3 dimensions, the model has 7"):
        open_target_index(folder, manifest, width=7)
    write_index(build_index(np.ones((9, 3), np.float32)), folder / NEIGHBOURS)
    files = manifest.files | {NEIGHBOURS: file_sha256(folder / NEIGHBOURS)}
    manifest = dataclasses.replace(manifest, files=files)
    with pytest.raises(
        GateError, match=r"neighbours\.faiss has 9 vectors, neighbours\.parquet has 4"
    ):
        open_target_index(folder, manifest, width=3)


def test_an_exemplar_is_the_bundles_file(app: FastAPI, bundle: Path) -> None:
    response = ask(app, "GET", f"/v1/exemplars/{D0}/0")
    assert response.content == (bundle / "exemplars" / D0 / "0.jpg").read_bytes()
    assert response.headers["content-type"] == "image/jpeg"
    assert response.headers["cache-control"] == "private, no-cache"
    again = {"If-None-Match": f'W/{response.headers["etag"]}, "other"'}
    unchanged = ask(app, "GET", f"/v1/exemplars/{D0}/0", headers=again)
    assert (unchanged.status_code, unchanged.content) == (304, b"")
    assert unchanged.headers["etag"] == response.headers["etag"]
    other = ask(app, "GET", f"/v1/exemplars/{D1}/0", headers=again)
    assert other.content == picture("cyan")


@pytest.mark.parametrize(
    "path",
    [
        *(f"{D0}/{number}" for number in ("1", "-1", "x", "9" * 5000, "0.5", "0.jpg", "", "0/0")),
        *("known-999/0", "..%2F..%2Fbundle.json/0", "%2Fetc%2Fpasswd/0", "%ff/0", "", D0),
        f"{D0}/..%2Fbundle.json",
    ],
)
def test_no_other_path_gives_a_file(app: FastAPI, path: str) -> None:
    assert code_of(ask(app, "GET", f"/v1/exemplars/{path}")) == "not_found"


def test_an_exemplar_wants_the_key(bundle: Path) -> None:
    app = app_of(bundle, api_key="secret")
    assert code_of(ask(app, "GET", f"/v1/exemplars/{D0}/0")) == "unauthorized"
    headers = {"Authorization": "Bearer secret"}
    assert ask(app, "GET", f"/v1/exemplars/{D0}/0", headers=headers).status_code == 200


def test_the_document_types_both(app: FastAPI) -> None:
    docs = ask(app, "GET", "/docs.json").json()
    schemas, post = docs["components"]["schemas"], docs["paths"]["/v1/nearest"]["post"]
    answer = post["responses"]["200"]["content"]["application/json"]["schema"]
    assert answer == {"$ref": "#/components/schemas/Nearest"}
    assert set(schemas["NearClass"]["required"]) == {
        "class_id",
        "label",
        "kind",
        "distance",
        "exemplars",
    }
    assert set(schemas["NearImage"]["properties"]) == {"path", "distance"}
    assert set(schemas["ClassDistance"]["required"]) == {"class_id", "label", "distance"}
    assert {"400", "401", "413", "415", "422", "429", "500", "504"} <= set(post["responses"])
    get = docs["paths"]["/v1/exemplars/{class_id}/{n}"]["get"]
    assert list(get["responses"]["200"]["content"]) == ["image/jpeg"]
    assert {"304", "401", "404", "default"} <= set(get["responses"])
    assert "HTTPValidationError" not in schemas
