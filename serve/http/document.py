"""The OpenAPI document, with what the routes themselves do not tell: the key and the headers."""

from collections.abc import Collection
from typing import Any

from fastapi import FastAPI

from scda.serve.http.errors import STATUS

_KEY = {"type": "http", "scheme": "bearer", "description": "A key of the server, if it needs one"}
_REQUEST_ID = {
    "description": "Id of the request, as in errors and in the log",
    "schema": {"type": "string"},
}
_RETRY = {"description": "Seconds to wait before another try", "schema": {"type": "integer"}}
_TAG = {"description": "Changes with the content", "schema": {"type": "string"}}


def complete(app: FastAPI, *, needs_key: bool, public: Collection[str]) -> None:
    """Add the key, the headers and the error codes to the document of an application.

    Args:
        app: The application, with all its routes.
        needs_key: Whether the server has a key at all.
        public: Paths that need no key.
    """
    describe = app.openapi

    def described() -> dict[str, Any]:
        if app.openapi_schema is None:
            document = describe()
            document.setdefault("components", {})["securitySchemes"] = {"key": _KEY}
            for path, operations in document["paths"].items():
                for operation in operations.values():
                    operation["security"] = _security(needs_key and path not in public)
                    _add_headers(operation["responses"])
            error = document["components"]["schemas"]["Error"]["properties"]["code"]
            error["enum"] = list(STATUS)
            app.openapi_schema = document
        return app.openapi_schema

    app.openapi = described  # type: ignore[method-assign]  # as FastAPI's documentation does


def _security(needed: bool) -> list[dict[str, list[str]]]:
    return [{"key": []}] if needed else []


def _add_headers(responses: dict[str, dict[str, Any]]) -> None:
    retried = str(STATUS["overloaded"])
    for status, response in responses.items():
        headers = response.setdefault("headers", {})
        headers["X-Request-Id"] = _REQUEST_ID
        if status == retried:
            headers["Retry-After"] = _RETRY
        if "image/jpeg" in response.get("content", {}) or status == "304":
            headers["ETag"] = _TAG
