"""The parts of the OpenAPI document that types cannot express: uploads and errors."""

from typing import Any

from scda.serve.http.errors import STATUS, ErrorBody

_WITHOUT_ROUTE = {"not_found", "method_not_allowed"}
FILE = {"type": "string", "format": "binary"}


def errors(*codes: str) -> dict[int | str, dict[str, Any]]:
    """Return the error responses with these codes; without codes, those of a route for images."""
    statuses = {STATUS[code] for code in codes or STATUS.keys() - _WITHOUT_ROUTE}
    return {status: {"model": ErrorBody} for status in sorted(statuses)}


def form(field: str, schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a multipart form with one field."""
    fields = {"type": "object", "required": [field], "properties": {field: schema}}
    return {"multipart/form-data": fields}


def body(schemas: dict[str, Any]) -> dict[str, Any]:
    """Return the description of a request body, from the schema of each content type."""
    content = {kind: {"schema": schema} for kind, schema in schemas.items()}
    return {"requestBody": {"required": True, "content": content}}


ONE_IMAGE = body({"application/octet-stream": FILE, **form("image", FILE)})
