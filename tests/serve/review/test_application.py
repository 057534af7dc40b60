import asyncio
import errno
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fastapi import FastAPI

from scda.models.bundle import NAMES
from scda.models.errors import GateError, UsageError
from scda.models.predictor import load_predictor
from scda.models.trust import ClassTrust, Doubt
from scda.serve.files.target_images import (
    TargetImage,
    TargetImages,
    open_target_images,
    read_target_images,
)
from scda.serve.http.application import create_app
from scda.serve.http.settings import Settings
from scda.serve.review.application import create_review_app
from scda.serve.review.server import serve_review
from tests.bundles import make_bundle, picture
from tests.serve.review.carried import make_carried

D0, D1, RED = "discovered-000", "discovered-001", "known-002"
HOST = "http://127.0.0.1:4242"
JSON = {"Content-Type": "application/json"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make_bundle(tmp_path / "bundle")


@pytest.fixture
def app(folder: Path) -> FastAPI:
    return create_review_app(folder, "token")


def ask(
    app: FastAPI, method: str, path: str, *, base: str = HOST, **content: Any
) -> httpx.Response:
    async def send() -> httpx.Response:
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url=base) as client:
            return await client.request(method, path, **content)

    return asyncio.run(send())


def change(app: FastAPI, **order: Any) -> httpx.Response:
    return ask(app, "POST", "/token/change", json=order)


def test_the_state_has_all_that_the_page_shows(app: FastAPI) -> None:
    state = ask(app, "GET", "/token/state").json()
    assert (state["version"], state["undo"], state["status"]) == (0, None, ["ok"])
    assert [info["class_id"] for info in state["classes"]][-2:] == [D0, D1]
    assert state["classes"][3] == {
        "class_id": D0,
        "kind": "discovered",
        "label": D0,
        "named": False,
        "size": 7,
        "confidence": 0.9,
        "nearest_known": RED,
        "similarity": None,
        "measures": "",
        "doubt": "",
        "pictures": 1,
        "merged_into": None,
        "dropped": False,
        "to_confirm": "",
    }


def test_what_a_class_keeps_is_to_confirm_until_somebody_decides_on_it(tmp_path: Path) -> None:
    app = create_review_app(make_carried(tmp_path / "bundle"), "token")

    def told() -> list[str]:
        return [info["to_confirm"] for info in ask(app, "GET", "/token/state").json()["classes"]]

    why = "many of its images were known-001 (green), discovered-007 (pen) before"
    assert told() == ["", "", "", why, "many of its images were known-000 before"]
    change(app, action="name", class_ids=[D0], label="stapler")  # the same name
    assert told()[3:] == ["", "many of its images were known-000 before"]
    change(app, action="undo")
    assert told()[3] == why
    change(app, action="drop", class_ids=[D1])  # the same drop
    assert told()[3:] == [why, ""]
    change(app, action="undo")
    change(app, action="restore", class_ids=[D1])
    assert told()[3:] == [why, ""]


def test_a_doubtful_class_stands_last_and_says_why(tmp_path: Path) -> None:
    trust = ClassTrust(stability=0.4, leak=0.3, similarity=0.6, doubts=(Doubt.LEAKS,))
    sure = replace(trust, doubts=())
    app = create_review_app(
        make_bundle(tmp_path / "bundle", class_trust={D0: trust, D1: sure}), "token"
    )
    first, last = ask(app, "GET", "/token/state").json()["classes"][3:]
    assert (first["class_id"], last["class_id"]) == (D1, D0)
    assert (first["doubt"], last["doubt"]) == ("", trust.reason)
    assert first["measures"] == sure.measures
    merged = change(app, action="merge", class_ids=[D0, D1]).json()["classes"][4]
    assert (merged["class_id"], merged["doubt"], merged["measures"]) == (D0, "", "")


def test_every_order_is_carried_out_and_kept(app: FastAPI) -> None:
    assert change(app, action="name", class_ids=[D0], label="lemon").json()["version"] == 1
    merged = change(app, action="merge", class_ids=[RED, D1]).json()
    assert merged["classes"][4]["merged_into"] == RED
    assert merged["undo"] == f"merged {D1} into {RED}"
    assert change(app, action="restore", class_ids=[D1]).json()["classes"][4]["merged_into"] is None
    assert change(app, action="drop", class_ids=[D1]).json()["classes"][4]["dropped"]
    assert not change(app, action="undo", version=4).json()["classes"][4]["dropped"]
    state = ask(app, "GET", "/token/state").json()
    assert state["version"] == 5
    assert [entry["did"] for entry in state["history"]][:2] == [
        f"undid: dropped {D1}",
        f"dropped {D1}",
    ]


def test_a_refused_order_says_why_and_how_things_stand(app: FastAPI) -> None:
    change(app, action="name", class_ids=[D0], label="lemon")
    refused = change(app, action="name", class_ids=[D1], label="lemon")
    assert refused.status_code == 409
    assert "lemon already" in refused.json()["error"]
    assert refused.json()["state"]["version"] == 1
    assert change(app, action="undo", version=0).status_code == 409
    assert change(app, action="drop", class_ids=[]).status_code == 409
    assert change(app, action="merge", class_ids=[D0]).status_code == 409


def test_an_edit_of_what_was_not_seen_is_a_conflict_that_shows_the_state(app: FastAPI) -> None:
    change(app, action="name", class_ids=[D0], label="lemon", version=0)
    refused = change(app, action="name", class_ids=[D0], label="sun", version=0)
    assert (refused.status_code, refused.json()["conflict"]) == (409, True)
    assert f"named {D0} lemon since you saw" in refused.json()["error"]
    assert "name sun was not saved" in refused.json()["error"]
    assert refused.json()["state"]["classes"][3]["label"] == "lemon"
    assert change(app, action="name", class_ids=[D1], label="sea", version=0).status_code == 200
    assert change(app, action="name", class_ids=[D0], label="sun", version=2).status_code == 200


def test_a_bundle_that_was_replaced_under_the_page_is_not_edited(
    app: FastAPI, folder: Path
) -> None:
    shutil.rmtree(folder)
    make_bundle(folder, labels=("azure", "lime", "crimson"))
    refused = change(app, action="name", class_ids=[D0], label="lemon", version=0)
    assert (refused.status_code, (folder / NAMES).exists()) == (500, False)
    assert "the bundle has been replaced; start the review anew" in refused.json()["error"]
    (folder / "exemplars" / D0 / "0.jpg").write_bytes(picture("cyan"))
    assert ask(app, "GET", f"/token/pictures/{D0}/0").status_code == 404
    shutil.rmtree(folder)
    assert ask(app, "GET", f"/token/pictures/{D0}/0").status_code == 404


@pytest.mark.parametrize(
    "content",
    [
        {"json": {"action": "explode"}},
        {"json": {"action": "name", "class_ids": "discovered-000"}},
        {"json": [1]},
        {"content": b"{", "headers": JSON},
        {"json": {"action": "undo", "version": "latest"}},
    ],
)
def test_what_is_no_order_is_a_400(app: FastAPI, content: dict[str, Any]) -> None:
    response = ask(app, "POST", "/token/change", **content)
    assert response.status_code == 400
    assert response.json()["error"].startswith("not a valid request of the review page")


@pytest.mark.parametrize("field", ["action", "class_ids", "label"])
def test_half_a_character_is_refused(app: FastAPI, field: str) -> None:
    order = {"action": "name", "class_ids": [D0], "label": "x"}
    order[field] = ["\udcff"] if field == "class_ids" else "\udcff"
    response = ask(app, "POST", "/token/change", content=json.dumps(order), headers=JSON)
    assert response.status_code in (400, 409)
    assert response.json()["error"]


def test_what_cannot_even_be_parsed_has_the_shape_of_every_error(app: FastAPI) -> None:
    deep = ask(app, "POST", "/token/change", content=b"[" * 30_000, headers=JSON)
    for response in (deep, ask(app, "GET", "/token/nothing")):
        assert response.status_code in (400, 404)
        assert list(response.json()) == ["error"]


def test_without_the_token_there_is_nothing(app: FastAPI) -> None:
    for path in ("/", "/state", "/tokem/state", "/token", "/TOKEN/state", "//state"):
        assert ask(app, "GET", path).status_code == 404
    assert ask(app, "POST", "/change", json={"action": "undo"}).status_code == 404


def test_another_name_for_this_machine_is_refused(app: FastAPI) -> None:
    for base in ("http://evil.example:80", "http://127.0.0.1.evil.example:80"):
        assert ask(app, "GET", "/token/state", base=base).status_code == 403
    for base in ("http://localhost:99", "http://[::1]:99", "http://127.0.0.1"):
        assert ask(app, "GET", "/token/state", base=base).status_code == 200


def test_orders_from_other_pages_are_refused(app: FastAPI, folder: Path) -> None:
    def post(headers: dict[str, str], body: bytes = b'{"action": "undo"}') -> int:
        json_type = {"Content-Type": "application/json"}
        both = {**json_type, **headers}
        return ask(app, "POST", "/token/change", content=body, headers=both).status_code

    assert post({"Origin": "http://evil.example"}) == 403
    assert post({"Content-Type": "text/plain"}) == 415
    assert post({}, b" " * 100_000) == 413
    assert post({"Origin": HOST}) == 409  # allowed; there is nothing to undo
    assert not (folder / NAMES).exists()


def test_every_answer_forbids_what_the_page_does_not_need(app: FastAPI) -> None:
    for path in ("/token/", "/token/review.js", "/token/review.css", "/token/state", "/"):
        headers = ask(app, "GET", path).headers
        assert "default-src 'none'" in headers["content-security-policy"]
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["cache-control"] == "no-store"
    assert "max-age" in ask(app, "GET", f"/token/pictures/{D0}/0").headers["cache-control"]


def test_pictures_are_the_bundles(app: FastAPI) -> None:
    assert ask(app, "GET", f"/token/pictures/{D0}/0").content == picture("yellow")
    for path in (f"{D0}/1", f"{D0}/-1", "known-099/0", "..%2Fbundle.json/0"):
        assert ask(app, "GET", f"/token/pictures/{path}").status_code in (400, 404)


def test_a_full_disk_is_told_and_costs_nothing(
    app: FastAPI, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    change(app, action="name", class_ids=[D0], label="lemon")
    before = (folder / NAMES).read_bytes()

    def full(handle: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    refused = change(app, action="name", class_ids=[D0], label="other")
    assert refused.status_code == 507
    assert "cannot save: No space left" in refused.json()["error"]
    assert (folder / NAMES).read_bytes() == before


def test_damaged_names_are_told(app: FastAPI, folder: Path) -> None:
    (folder / NAMES).write_text("{")
    assert "damaged" in ask(app, "GET", "/token/state").json()["error"]
    assert change(app, action="name", class_ids=[D0], label="lemon").status_code == 500
    assert (folder / NAMES).read_text() == "{"


@pytest.fixture
def target(folder: Path, tmp_path: Path) -> Path:
    rows = [("a.jpg", D0, 0.7), ("sub/b.jpg", D0, 0.9), ("c.jpg", D1, 0.8), ("gone.jpg", D1, 0.6)]
    for path, _, _ in rows[:3]:
        (tmp_path / "target" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "target" / path).write_bytes(picture("yellow", size=(400, 300)))
    names = ("path", "class_id", "confidence")
    table = {name: [row[i] for row in rows] for i, name in enumerate(names)}
    pq.write_table(pa.table(table), folder / "neighbours.parquet")
    return tmp_path / "target"


def test_all_images_of_a_class_can_be_seen(folder: Path, target: Path) -> None:
    app = create_review_app(folder, "token", target=target)
    assert ask(app, "GET", "/token/state").json()["why_no_images"] == ""
    shown = ask(app, "GET", f"/token/images/{D0}").json()
    assert [image["path"] for image in shown["images"]] == ["sub/b.jpg", "a.jpg"]
    shown = ask(app, "GET", f"/token/images/{D0}?surest_first=false&start=1").json()
    assert (shown["total"], [image["row"] for image in shown["images"]]) == (2, [1])
    change(app, action="merge", class_ids=[D0, D1])
    assert ask(app, "GET", f"/token/images/{D0}").json()["total"] == 4
    response = ask(app, "GET", "/token/image/1")
    assert response.headers["content-type"] == "image/jpeg"
    for row in ("3", "4", "-1", "x"):  # gone, never there
        assert ask(app, "GET", f"/token/image/{row}").status_code in (400, 404)


def test_why_images_cannot_be_seen(folder: Path, target: Path, tmp_path: Path) -> None:
    manifest = load_predictor(folder).manifest
    assert (
        "does not exist on this machine"
        in open_target_images(folder, manifest, tmp_path / "no").why_not
    )
    (folder / "neighbours.parquet").unlink()
    assert "without neighbours" in open_target_images(folder, manifest, target).why_not
    with pytest.raises(GateError, match=r"no neighbours\.parquet"):
        read_target_images(folder)


def test_the_target_may_be_where_one_stands(
    folder: Path, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(target)
    assert open_target_images(folder, load_predictor(folder).manifest, Path()).why_not == ""


def test_target_images_without_a_folder_shows_nothing() -> None:
    target_images = TargetImages([TargetImage("a.jpg", D0, 0.5)], None, "why")
    with pytest.raises(Exception, match="no image 0"):
        target_images.thumbnail(0)


def test_served_answers_follow_the_page_without_restart(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("scda.serve.http.served.watcher.INTERVAL_SECONDS", 0.0)
    page = create_review_app(folder, "token")
    endpoint = create_app(load_predictor(folder), Settings(bundle=folder, threads=1))

    def served(colour: str) -> dict[str, Any]:
        answer = ask(endpoint, "POST", "/v1/predict", content=picture(colour)).json()
        assert sum(e["confidence"] for e in answer["top"]) == pytest.approx(1, abs=1e-5)
        assert isinstance(answer, dict)
        return answer

    before = served("cyan")
    assert (before["label"], before["names_version"]) == (D1, 0)
    change(page, action="name", class_ids=[D0], label="lemon")
    change(page, action="merge", class_ids=[D0, D1])
    after = served("cyan")
    assert (after["label"], after["class_id"], after["names_version"]) == ("lemon", D0, 2)
    assert after["confidence"] > before["confidence"]
    change(page, action="drop", class_ids=[D0])
    assert served("yellow")["kind"] == "unknown"


@pytest.mark.parametrize(("number", "quiet"), [(signal.SIGINT, False), (signal.SIGTERM, True)])
def test_the_program_says_its_address_and_ends_on_a_signal(
    folder: Path, number: int, quiet: bool
) -> None:
    words = [sys.executable, "-m", "scda.adapt", "review", folder, "--no-browser"]
    words += ["--quiet"] if quiet else []
    process = subprocess.Popen(
        [str(word) for word in words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    address = process.stdout.readline().strip()
    assert address.startswith("http://127.0.0.1:")
    assert len(address.split("/")[3]) >= 32
    page = httpx.get(address, timeout=60)
    assert "Review the discovered classes" in page.text
    process.send_signal(number)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 0, said
    assert said.count("\n") == (0 if quiet else 3)  # a note, and how far one is in two lines
    assert ("next: discovered-000 covers 18% more" in said) != quiet


def test_the_browser_is_led_to_the_page_by_a_file_for_its_owner_alone(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[tuple[str, str, int]] = []
    looked = threading.Event()

    def look(url: str) -> bool:
        page = Path(url.removeprefix("file://"))
        opened.append((url, page.read_text(), page.parent.stat().st_mode & 0o777))
        looked.set()
        return True

    monkeypatch.setattr("webbrowser.open", look)
    monkeypatch.setattr("uvicorn.Server.run", lambda *_: looked.wait(60))
    addresses: list[str] = []
    serve_review(folder, on_address=addresses.append)
    ((url, text, mode),) = opened
    assert addresses[0] in text
    assert addresses[0].split("/")[3] not in url
    assert mode == 0o700
    assert not Path(url.removeprefix("file://")).exists()


def test_a_port_that_cannot_be_had_is_told(folder: Path) -> None:
    with pytest.raises(UsageError, match="port 70000: expected a number from 0 to 65535"):
        serve_review(folder, port=70_000, browser=False)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(UsageError, match=f"cannot listen on 127.0.0.1:{port}"):
            serve_review(folder, port=port, browser=False)
