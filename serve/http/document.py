"""The OpenAPI document, with what the routes themselves do not tell.

Generated clients are as readable as this document: their modules are its tags, their classes its
named schemas, and their enumerations its closed sets of texts.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from fastapi import FastAPI

from scda.serve.http.errors import HEADERS, STATUS
from scda.serve.http.openapi import reference

_KEY = {"type": "http", "scheme": "bearer", "description": "A key of the server, if it needs one"}
_TEXT = {"type": "string"}
_ID = "the id of the request, as in errors and in the log"
_DESCRIBED = {
    "X-Request-Id": {"description": f"Repeats or gives {_ID}", "schema": _TEXT},
    "Retry-After": {"description": "Seconds to wait before a retry", "schema": {"type": "integer"}},
    "WWW-Authenticate": {"description": "The kind of key that is expected", "schema": _TEXT},
    "ETag": {"description": "Changes with the content", "schema": _TEXT},
}
_OWN_ID = {
    "name": "X-Request-Id",
    "in": "header",
    "description": f"Sets {_ID}: at most 128 letters, digits and ._:/+=@-",
    "schema": _TEXT,
}
_TAGS = {
    "predictions": "Classify images.",
    "model": "Describe and change the model.",
    "open inference": "The Open Inference Protocol, version 2.",
    "page": "The page for people.",
}
_TEXTS: dict[str, tuple[Sequence[str], Sequence[str]]] = {  # by name, texts and where they stand
    "Kind": (
        ("known", "discovered", "unknown"),
        ("Prediction.kind", "NearClass.kind", "ClassCard.kind"),
    ),
    "Provider": (("cpu", "cuda", "openvino"), ("ModelCard.provider",)),
    "ErrorCode": (tuple(STATUS), ("Error.code",)),
}
MEANING = {
    "empty": "The image has no bytes.",
    "bad_request": "The request or its body is not what was expected; the message says what.",
    "unauthorized": "A key is required.",
    "forbidden": "The header Host names a host that is not allowed.",
    "not_found": "There is no such route, class or exemplar, or it is another model's.",
    "method_not_allowed": "The route does not have this method.",
    "request_timeout": "The headers or the body did not arrive in time.",
    "not_reloaded": "The bundle cannot be served; the earlier one still is.",
    "too_many_bytes": "The upload is too large.",
    "too_many_pixels": "An image has too many pixels.",
    "too_many_files": "There are too many images.",
    "not_an_image": "The file does not start like an image.",
    "cannot_decode": "The image is damaged, or needs too much work or memory.",
    "overloaded": "The queue is full, an image that takes long would be answered too late, or the "
    "client has too many connections; try again.",
    "headers_too_large": "There are too many headers, or they are too large.",
    "internal": "An internal error; the log of the server has the request's id.",
    "unavailable": "The server stops, serves another model than its other workers, or has no room "
    "for more uploads or connections; try again.",
    "timeout": "The answer was not ready in time.",
}


def complete(
    app: FastAPI, schemas: Mapping[str, Any], *, needs_key: bool, public: Collection[str]
) -> None:
    """Add to the document of an application what its routes do not tell.

    Args:
        app: The application, with all its routes.
        schemas: By name, the schemas that its routes refer to in what they describe themselves.
        needs_key: Whether the server has a key at all.
        public: Paths that need no key.
    """
    describe = app.openapi

    def described() -> dict[str, Any]:
        if app.openapi_schema is None:
            document = describe()
            document["tags"] = [{"name": n, "description": text} for n, text in _TAGS.items()]
            components = document.setdefault("components", {})
            components["securitySchemes"] = {"key": _KEY}
            components["schemas"].update(schemas)
            _name_texts(components["schemas"])
            for path, operations in document["paths"].items():
                for operation in operations.values():
                    key: list[Any] = [{"key": []}] if needs_key and path not in public else []
                    operation |= {"security": key, "tags": [_tag(path, operation)]}
                    if "requestBody" in operation:
                        operation.setdefault("parameters", []).append(_OWN_ID)
                    for status, response in operation["responses"].items():
                        _describe(status, response)
            app.openapi_schema = document
        return app.openapi_schema

    app.openapi = described  # type: ignore[method-assign]  # as FastAPI's documentation does


def _tag(path: str, operation: Mapping[str, Any]) -> str:
    if path == "/":
        return "page"
    if path.startswith("/v2"):
        return "open inference"
    return "predictions" if "requestBody" in operation else "model"


def _name_texts(schemas: dict[str, Any]) -> None:
    """Give the closed sets of texts schemas of their own."""
    for name, (values, places) in _TEXTS.items():
        schemas[name] = {"type": "string", "enum": list(values)}
        for place in places:
            schema, _, field = place.partition(".")
            schemas[schema]["properties"][field] = reference(name)
    schemas["ErrorCode"]["description"] = _list(STATUS)


def _describe(status: str, response: dict[str, Any]) -> None:
    """Say what a response means, by the codes that have its status, and which headers it has."""
    codes = [code for code in STATUS if str(STATUS[code]) == status]
    if codes:
        response["description"] = _list(codes)
    names = ["X-Request-Id", *(name for code in codes for name in HEADERS.get(code, ()))]
    if "image/jpeg" in response.get("content", {}) or status == "304":
        names.append("ETag")
    response["headers"] = {name: _DESCRIBED[name] for name in names}


def _list(codes: Iterable[str]) -> str:
    return "\n".join(f"* `{code}`: {MEANING[code]}" for code in codes)
