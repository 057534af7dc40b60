"""What the OpenAPI document says beyond the types of the routes: files, and errors."""

from typing import Any

from scda.serve.http.errors import STATUS, ErrorBody

_OF_NO_ROUTE = {"not_found", "method_not_allowed"}
FILE = {"type": "string", "format": "binary"}


def errors(*codes: str) -> dict[int | str, dict[str, Any]]:
    """Return the descriptions of errors: of these codes, or of all that an image may get."""
    statuses = {STATUS[code] for code in codes or STATUS.keys() - _OF_NO_ROUTE}
    return {status: {"model": ErrorBody} for status in sorted(statuses)}


def form(field: str, schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a multipart form with one field."""
    fields = {"type": "object", "required": [field], "properties": {field: schema}}
    return {"multipart/form-data": fields}


def body(schemas: dict[str, Any]) -> dict[str, Any]:
    """Return what a route says of a body that it reads itself: content type → schema."""
    content = {kind: {"schema": schema} for kind, schema in schemas.items()}
    return {"requestBody": {"required": True, "content": content}}


ONE_IMAGE = body({"application/octet-stream": FILE, **form("image", FILE)})
