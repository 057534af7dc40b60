"""The routes of the Open Inference Protocol, in this process."""

import base64
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from fastapi import FastAPI
from hypothesis import given, settings
from hypothesis import strategies as st

from scda.models.predictor import Predictor
from scda.serve.http.application import create_app
from scda.serve.http.errors import STATUS
from scda.serve.http.requests.exchange import DISCARD_BYTES
from scda.serve.http.settings import Settings
from scda.serve.http.v2.requests import HEADER_LENGTH
from scda.serve.http.v2.tensors import LENGTH, OUTPUTS, split_elements
from tests.bundles import picture
from tests.serve.http.test_application import ask

RED, CYAN = picture("red"), picture("cyan")
INFER = "/v2/models/scda/infer"


@pytest.fixture(scope="module")
def app(predictor: Predictor) -> FastAPI:
    limits = Settings(bundle=Path("bundle"), threads=1, max_bytes=100_000, max_files=3)
    return create_app(predictor, limits)


def tensor(*images: bytes, **changes: Any) -> dict[str, Any]:
    texts = [base64.b64encode(image).decode() for image in images]
    described = {"name": "image", "shape": [len(images)], "datatype": "BYTES", "data": texts}
    return {**described, **changes}


def infer(app: FastAPI, **body: Any) -> httpx.Response:
    return ask(app, "POST", INFER, json=body)


def infer_binary(app: FastAPI, *images: bytes, header: str = "", **body: Any) -> httpx.Response:
    tail = b"".join(LENGTH.pack(len(image)) + image for image in images)
    size = {"binary_data_size": len(tail)}
    image = {"name": "image", "shape": [len(images)], "datatype": "BYTES", "parameters": size}
    text = json.dumps({"inputs": [image], **body}).encode()
    headers = {HEADER_LENGTH: header or str(len(text))}
    return ask(app, "POST", INFER, content=text + tail, headers=headers)


def outputs(answer: httpx.Response) -> dict[str, Any]:
    assert answer.status_code == 200, answer.text
    return {output["name"]: output for output in answer.json()["outputs"]}


def refusal(answer: httpx.Response) -> str:
    """Return the error's text, which is all of the body."""
    body = answer.json()
    assert list(body) == ["error"]
    code = body["error"].partition(":")[0]
    assert answer.status_code == STATUS[code]
    assert answer.headers["x-request-id"]
    return str(body["error"])


def test_the_outputs_are_the_fields_of_a_prediction(app: FastAPI, predictor: Predictor) -> None:
    answer = infer(app, id="first", inputs=[tensor(RED, CYAN)])
    body, found = answer.json(), outputs(answer)
    assert (body["model_name"], body["model_version"]) == ("scda", predictor.manifest.id)
    assert body["id"] == "first"
    assert list(found) == list(OUTPUTS)
    for number, image in enumerate((RED, CYAN)):
        expected = ask(app, "POST", "/v1/predict", content=image).json()
        assert {name: output["data"][number] for name, output in found.items()} == {
            name: expected[name] for name in OUTPUTS
        }
    assert {tuple(output["shape"]) for output in found.values()} == {(2,)}
    assert {name: output["datatype"] for name, output in found.items()} == OUTPUTS


def test_binary_tensors_are_what_json_is(app: FastAPI) -> None:
    expected = outputs(infer(app, inputs=[tensor(RED, CYAN)]))
    assert outputs(infer_binary(app, RED, CYAN)) == expected
    answer = infer_binary(app, RED, CYAN, parameters={"binary_data_output": True})
    assert answer.headers["content-type"] == "application/octet-stream"
    length = int(answer.headers[HEADER_LENGTH])
    body, data = json.loads(answer.content[:length]), answer.content[length:]
    for output in body["outputs"]:
        size = output["parameters"]["binary_data_size"]
        part, data = data[:size], data[size:]
        values = expected[output["name"]]["data"]
        if output["datatype"] == "BYTES":
            assert [text.decode() for text in split_elements(part, 2)] == values
        else:
            kind = {"FP32": "<f4", "BOOL": "|b1"}[output["datatype"]]
            np.testing.assert_allclose(np.frombuffer(part, kind), values, rtol=1e-6)
    assert data == b""


def test_outputs_may_be_chosen_and_an_input_nested(app: FastAPI) -> None:
    wanted = [{"name": "class_id"}, {"name": "label"}]
    assert list(outputs(infer(app, inputs=[tensor(RED)], outputs=wanted))) == ["class_id", "label"]
    data = [[text] for text in tensor(RED, CYAN)["data"]]
    found = outputs(infer(app, inputs=[tensor(RED, CYAN, shape=[2, 1], data=data)]))
    assert found["label"]["data"] == ["red", "discovered-001"]


def test_health_and_metadata(app: FastAPI, predictor: Predictor) -> None:
    for path, body in {
        "/v2/health/live": {"live": True},
        "/v2/health/ready": {"ready": True},
        "/v2/models/scda/ready": {"ready": True},
    }.items():
        assert ask(app, "GET", path).json() == body
    server = ask(app, "GET", "/v2").json()
    assert (server["name"], server["extensions"]) == ("scda", ["binary_tensor_data"])
    model = ask(app, "GET", "/v2/models/scda").json()
    assert (model["name"], model["versions"]) == ("scda", [predictor.manifest.id])
    assert model["inputs"] == [{"name": "image", "datatype": "BYTES", "shape": [-1]}]
    assert {output["name"]: output["datatype"] for output in model["outputs"]} == OUTPUTS


def test_only_health_needs_no_key(predictor: Predictor) -> None:
    app = create_app(predictor, Settings(bundle=Path("bundle"), threads=1, api_key="secret"))
    for path in ("/v2/health/live", "/v2/health/ready"):
        assert ask(app, "GET", path).status_code == 200
    for path in ("/v2", "/v2/models/scda", "/v2/models/scda/ready"):
        assert refusal(ask(app, "GET", path)).startswith("unauthorized: expected the header")
    assert refusal(infer(app, inputs=[tensor(RED)])).startswith("unauthorized")


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ({}, "bad_request: the JSON has no field 'inputs'; expected {\"inputs\""),
        ({"inputs": []}, "bad_request: the field 'inputs' is an empty list"),
        ({"inputs": [1]}, "bad_request: expected one input named 'image'"),
        ({"inputs": [tensor(RED)] * 2}, "bad_request: expected one input"),
        ({"inputs": [tensor(RED, name="x")]}, "bad_request: expected one input"),
        ({"inputs": [tensor(RED, datatype="UINT8")]}, "bad_request: the input 'image' must have"),
        ({"inputs": [tensor(RED, shape=[2])]}, "bad_request: the input 'image' has 1 elements"),
        ({"inputs": [tensor(RED, shape=[])]}, "bad_request: the shape of"),
        ({"inputs": [tensor(RED, shape=[True])]}, "bad_request: the shape of"),
        ({"inputs": [tensor(RED, shape=[-1])]}, "bad_request: the shape of"),
        ({"inputs": [tensor(RED, shape=[2**30] * 9)]}, "too_many_files"),
        ({"inputs": [tensor(*[RED] * 4)]}, "too_many_files"),
        ({"inputs": [tensor(RED, data="x")]}, "bad_request: the input 'image' has 0 elements"),
        ({"inputs": [tensor(RED, data=["*"])]}, "bad_request: element 0 of 'image' is not base64"),
        ({"inputs": [tensor(RED, data=[5])]}, "bad_request: element 0 of 'image' is a number"),
        ({"inputs": [tensor(RED, b"text")]}, "not_an_image: element 1 of 'image': this looks like"),
        ({"inputs": [tensor(bytes(100_001))]}, "too_many_bytes"),
        ({"inputs": [tensor(RED)], "id": 5}, "bad_request: the id"),
        ({"inputs": [tensor(RED)], "id": "x" * 200}, "bad_request: the id"),
        ({"inputs": [tensor(RED)], "outputs": [{"name": "x"}]}, "bad_request: expected outputs"),
        ({"inputs": [tensor(RED)], "outputs": [{"name": []}]}, "bad_request: expected outputs"),
        ({"inputs": [tensor(RED)], "outputs": "label"}, "bad_request: expected outputs"),
        ({"inputs": [tensor(RED, parameters={"binary_data_size": 5})]}, "bad_request: binary_data"),
    ],
)
def test_a_wrong_request_says_what_is_expected(
    app: FastAPI, body: dict[str, Any], reason: str
) -> None:
    assert refusal(infer(app, **body)).startswith(reason)


def test_a_wrong_binary_request_says_what_is_expected(app: FastAPI) -> None:
    for header in ("0", "-1", "x", "9" * 30, "70000"):
        assert "Inference-Header-Content-Length" in refusal(infer_binary(app, RED, header=header))
    assert refusal(infer_binary(app, *[RED] * 4)).startswith("too_many_files")
    assert refusal(infer_binary(app, bytes(200_000))).startswith("too_many_bytes")
    for data, count in ((b"", 1), (b"\1\0\0\0x", 2), (b"\2\0\0\0x", 1), (b"\0\0\0\0x", 1)):
        with pytest.raises(Exception, match=f"does not hold {count} elements"):
            split_elements(data, count)


def test_a_path_that_is_not_there_has_an_error_of_the_protocol(app: FastAPI) -> None:
    for path in ("/v2/models/other", "/v2/models/scda/stats"):
        assert refusal(ask(app, "GET", path)) == f"not_found: GET {path}: Not Found"
    assert refusal(ask(app, "GET", INFER)).startswith("method_not_allowed")


def test_a_binary_body_without_a_length_is_read_no_further_than_its_limit(app: FastAPI) -> None:
    sent = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal sent
        while True:
            sent += 1
            yield b"x" * 10_000

    answer = ask(app, "POST", INFER, content=endless(), headers={HEADER_LENGTH: "10"})
    assert refusal(answer).startswith("too_many_bytes")
    assert sent <= 19 + DISCARD_BYTES // 10_000


_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner),
    max_leaves=8,
)


@settings(max_examples=150)
@given(
    changes=st.dictionaries(
        st.sampled_from(["name", "shape", "datatype", "data", "parameters"]), _VALUES, max_size=2
    ),
    others=st.dictionaries(
        st.sampled_from(["id", "outputs", "parameters", "inputs"]), _VALUES, max_size=2
    ),
)
def test_no_request_is_a_5xx(app: FastAPI, changes: dict[str, Any], others: dict[str, Any]) -> None:
    answer = infer(app, **{"inputs": [tensor(RED, **changes)], **others})
    assert answer.status_code < 500
    if answer.status_code != 200:
        refusal(answer)
