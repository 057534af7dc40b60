"""The three forms in which a request brings images: a form, JSON, and the body itself."""

import base64
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from scda.models.predictor import Predictor
from scda.serve.http.application import create_app
from scda.serve.http.requests.exchange import DISCARD_BYTES
from scda.serve.http.settings import Settings
from tests.bundles import picture
from tests.serve.http.test_application import ask, code_of

RED, CYAN = picture("red"), picture("cyan")


@pytest.fixture(scope="module")
def app(predictor: Predictor) -> FastAPI:
    limits = Settings(
        bundle=Path("bundle"), threads=1, max_bytes=100_000, max_pixels=1_000_000, max_files=3
    )
    return create_app(predictor, limits)


def text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def post(app: FastAPI, route: str, **content: Any) -> httpx.Response:
    return ask(app, "POST", f"/v1/{route}", **content)


def test_json_gives_what_a_form_gives(app: FastAPI) -> None:
    for route in ("predict", "nearest"):
        expected = post(app, route, files={"image": RED}).json()
        assert post(app, route, json={"image": text(RED), "other": [1]}).json() == expected
        url = f"data:image/jpeg;base64,{text(RED)}"
        assert post(app, route, json={"image": url}).json() == expected
    files = [("images", RED), ("images", CYAN)]
    expected = post(app, "predict_batch", files=files).json()
    answer = post(app, "predict_batch", json={"images": [text(RED), text(CYAN)]})
    assert answer.json() == expected


def test_the_example_of_the_document_is_answered(app: FastAPI) -> None:
    paths = ask(app, "GET", "/docs.json").json()["paths"]
    for route in ("predict", "nearest", "predict_batch"):
        content = paths[f"/v1/{route}"]["post"]["requestBody"]["content"]
        answer = post(app, route, json=content["application/json"]["example"])
        assert answer.status_code == 200
        assert '"label":"red"' in answer.text


@pytest.mark.parametrize("kind", ["application/json; charset=utf-8", "Application/JSON "])
def test_json_is_told_by_its_content_type(app: FastAPI, kind: str) -> None:
    body, headers = json.dumps({"image": text(RED)}), {"Content-Type": kind}
    assert post(app, "predict", content=body, headers=headers).json()["label"] == "red"
    # An image is one whatever its type says.
    assert post(app, "predict", content=RED, headers=headers).json()["label"] == "red"


def test_json_of_another_type_is_told_from_an_image(app: FastAPI) -> None:
    answer = post(app, "predict", content=json.dumps({"image": text(RED)}))
    assert code_of(answer) == "not_an_image"
    message = answer.json()["error"]["message"]
    assert message == (
        "this looks like JSON; send it with Content-Type: application/json, "
        'as {"image": "<base64>"}'
    )


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (text(RED).encode(), "this looks like base64 text, which must be decoded first"),
        (b"data:image/jpeg;base64," + text(RED).encode(), "this looks like a data: URL"),
        (b"This is no picture", "this looks like text; expected an image file: JPEG, PNG"),
    ],
)
def test_an_upload_that_is_no_image_is_named_in_words(
    app: FastAPI, data: bytes, words: str
) -> None:
    for content in ({"content": data}, {"files": {"image": data}}, {"json": {"image": text(data)}}):
        answer = post(app, "predict", **content)
        assert code_of(answer) == "not_an_image"
        assert answer.json()["error"]["message"].startswith(words)


def test_a_bad_image_in_json_has_the_code_of_one_in_a_form(app: FastAPI) -> None:
    for data in (b"", b"hello", RED[:300], picture("red", size=(2000, 1000), kind="PNG")):
        expected = code_of(post(app, "predict", files={"image": ("x.jpg", data)}))
        assert code_of(post(app, "predict", json={"image": text(data)})) == expected
    answer = post(app, "predict_batch", json={"images": [text(RED), text(b"hello"), text(CYAN)]})
    first, second, third = answer.json()["results"]
    assert (first["label"], third["label"]) == ("red", "discovered-001")
    assert second["error"]["code"] == "not_an_image"


@pytest.mark.parametrize(
    ("route", "body", "message"),
    [
        ("predict", {"images": [text(RED)]}, 'expected {"image": "<base64>"}'),
        ("predict", [], "the JSON is a list"),
        ("predict", {"image": "http://127.0.0.1/x"}, '"image" is an address'),
        ("nearest", {"image": "*"}, '"image" is not base64'),
        ("predict_batch", {"image": text(RED)}, 'expected {"images": ["<base64>", ...]}'),
        ("predict_batch", {"images": text(RED)}, "the field 'images' is a string"),
        ("predict_batch", {"images": []}, "the field 'images' is an empty list"),
        ("predict_batch", {"images": [text(RED), "*"]}, '"images"[1] is not base64'),
    ],
)
def test_json_of_another_shape_says_what_is_expected(
    app: FastAPI, route: str, body: Any, message: str
) -> None:
    answer = post(app, route, json=body)
    assert code_of(answer) == "bad_request"
    assert message in answer.json()["error"]["message"]


def test_a_batch_is_a_form_or_json(app: FastAPI) -> None:
    answer = post(app, "predict_batch", content=RED)
    assert code_of(answer) == "bad_request"
    assert "or application/json" in answer.json()["error"]["message"]


def test_the_limits_are_those_of_the_files(app: FastAPI) -> None:
    def code(route: str, body: Any) -> str:
        return code_of(post(app, route, json=body))

    # The largest file is read, also with line breaks; the next byte is too much.
    largest = RED + bytes(100_000 - len(RED))
    lines = base64.encodebytes(largest).decode()
    for body in ({"image": text(largest)}, {"image": lines}):
        assert post(app, "predict", json=body).json()["label"] == "red"
    assert code("predict", {"image": text(largest + b"x")}) == "too_many_bytes"
    assert code("predict_batch", {"images": [text(bytes(60_000))] * 2}) == "too_many_bytes"
    assert code("predict_batch", {"images": [text(RED)] * 4}) == "too_many_files"
    assert code("predict_batch", {"images": ["AAAA"] * 4}) == "too_many_files"
    raw = largest + bytes(1000)
    headers = {"Content-Type": "application/json"}
    assert code_of(post(app, "predict", content=raw, headers=headers)) == "too_many_bytes"


def test_json_without_a_length_is_read_no_further_than_its_limit(app: FastAPI) -> None:
    for head in (b'{"image": "', b'{"x": [', b'{"image": "http://', b'{"a": "\\"'):
        sent = 0

        async def endless(head: bytes = head) -> AsyncIterator[bytes]:
            nonlocal sent
            yield head
            while True:
                sent += 1
                yield b"AAAA," * 2_000 if head.endswith(b"[") else b"A" * 10_000

        headers = {"Content-Type": "application/json"}
        assert code_of(post(app, "predict", content=endless(), headers=headers)) == "too_many_bytes"
        # The limit and a half, and the framing; then what is discarded after the answer.
        assert sent <= 24 + DISCARD_BYTES // 10_000
