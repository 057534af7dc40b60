"""The OpenAPI document: what it tells, and what generated clients need of it."""

from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI

from scda.models.predictor import Predictor
from scda.serve.http.document import MEANING
from scda.serve.http.errors import STATUS
from tests.serve.http.test_application import app_for, ask

DOCS = Path(__file__).parent.parent.parent.parent / "docs" / "serving.md"


@pytest.fixture(scope="module")
def app(predictor: Predictor) -> FastAPI:
    return app_for(predictor)


def test_openapi_describes_every_route(app: FastAPI) -> None:
    docs = ask(app, "GET", "/docs.json").json()
    assert {path for path in docs["paths"] if not path.startswith("/v2")} == {
        "/",
        "/v1/predict",
        "/v1/predict_batch",
        "/v1/nearest",
        "/v1/model",
        "/v1/exemplars/{class_id}/{n}",
    }
    routes = [route for path in docs["paths"].values() for route in path.values()]
    ids = [route["operationId"] for route in routes]
    assert {"page", "predict", "predict_batch", "nearest", "model", "exemplar", "infer"} <= {*ids}
    assert len(ids) == len({*ids})
    post = docs["paths"]["/v1/predict"]["post"]
    assert set(post["requestBody"]["content"]) == {
        "application/json",
        "application/octet-stream",
        "multipart/form-data",
    }
    assert {"200", "400", "401", "413", "415", "422", "429", "504"} <= set(post["responses"])


def test_openapi_tells_of_the_key_the_headers_and_the_codes(
    app: FastAPI, predictor: Predictor
) -> None:
    open_to_all = ask(app, "GET", "/docs.json").json()["paths"]
    assert open_to_all["/v1/predict"]["post"]["security"] == []
    key = {"Authorization": "Bearer secret"}
    docs = ask(app_for(predictor, api_key="secret"), "GET", "/docs.json", headers=key).json()
    assert docs["components"]["securitySchemes"]["key"]["scheme"] == "bearer"
    schemas = docs["components"]["schemas"]
    assert schemas["Error"]["properties"]["code"] == {"$ref": "#/components/schemas/ErrorCode"}
    assert schemas["ErrorCode"]["enum"] == list(STATUS)
    for code in STATUS:
        assert f"`{code}`: " in schemas["ErrorCode"]["description"]
    paths = docs["paths"]
    assert paths["/v1/predict"]["post"]["security"] == [{"key": []}]
    assert paths["/v2/health/live"]["get"]["security"] == paths["/"]["get"]["security"] == []
    responses = paths["/v1/predict"]["post"]["responses"]
    for status in ("429", "503"):
        assert {"X-Request-Id", "Retry-After"} == responses[status]["headers"].keys()
    assert "WWW-Authenticate" in responses["401"]["headers"]
    assert responses["400"]["description"].startswith(
        "* `empty`: The image has no bytes.\n* `bad_r"
    )
    assert {"X-Request-Id"} == responses["200"]["headers"].keys()
    exemplar = paths["/v1/exemplars/{class_id}/{n}"]["get"]["responses"]
    assert "ETag" in exemplar["200"]["headers"].keys() & exemplar["304"]["headers"].keys()


def test_every_code_has_a_meaning_here_and_in_the_docs() -> None:
    assert set(MEANING) == set(STATUS)
    page = DOCS.read_text()
    assert [code for code in STATUS if f"`{code}`" not in page] == []


def test_what_clients_send_and_get_has_names(app: FastAPI) -> None:
    """Classes of generated clients would be named after routes and places otherwise."""
    document = ask(app, "GET", "/docs.json").json()
    for place, schema in _inline(document):
        assert "properties" not in schema, place
        assert "enum" not in schema, place


def _inline(document: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """Return the schemas inside other schemas, and those of bodies and answers."""
    found = []
    for name, schema in document["components"]["schemas"].items():
        for field, value in schema.get("properties", {}).items():
            found += [(f"{name}.{field}", value), (f"{name}.{field}[]", value.get("items", {}))]
    for path, operations in document["paths"].items():
        for operation in operations.values():
            bodies = [operation.get("requestBody", {}), *operation["responses"].values()]
            contents = [one for body in bodies for one in body.get("content", {}).values()]
            found += [(path, content["schema"]) for content in contents]
    return found


def test_every_reference_leads_somewhere(app: FastAPI) -> None:
    document = ask(app, "GET", "/docs.json").json()
    schemas = document["components"]["schemas"]
    wanted = {one.rpartition("/")[2] for one in _references(document)}
    assert wanted <= set(schemas)
    assert {"ImageForm", "ImagesJson", "InferRequest", "Kind", "ErrorCode"} <= wanted


def _references(value: Any) -> list[str]:
    if isinstance(value, dict):
        own = [value["$ref"]] if "$ref" in value else []
        return own + [one for inner in value.values() for one in _references(inner)]
    return [one for inner in value for one in _references(inner)] if isinstance(value, list) else []


def test_operations_are_grouped_and_uploads_may_name_their_request(app: FastAPI) -> None:
    document = ask(app, "GET", "/docs.json").json()
    described = {tag["name"] for tag in document["tags"]}
    for operations in document["paths"].values():
        for operation in operations.values():
            assert described.issuperset(operation["tags"])
            # openapi-python-client needs something optional beside several kinds of body.
            names = [one["name"] for one in operation.get("parameters", [])]
            assert ("X-Request-Id" in names) == ("requestBody" in operation)
