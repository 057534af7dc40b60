"""The parts of the OpenAPI document that types cannot express: uploads and errors."""

from typing import Any

from scda.serve.http.errors import STATUS, ErrorBody

_NOT_FOR_IMAGES = {"not_found", "method_not_allowed", "not_reloaded"}
FILE = {"type": "string", "format": "binary"}


def errors(*codes: str) -> dict[int | str, dict[str, Any]]:
    """Return the error responses with these codes; without codes, those of a route for images."""
    statuses = {STATUS[code] for code in codes or STATUS.keys() - _NOT_FOR_IMAGES}
    return {status: {"model": ErrorBody} for status in sorted(statuses)}


def _form(field: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"multipart/form-data": {"schema": _object(field, schema)}}


def _json(field: str, schema: dict[str, Any], example: Any) -> dict[str, Any]:
    return {"application/json": {"schema": _object(field, schema), "example": {field: example}}}


def _object(field: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "required": [field], "properties": {field: schema}}


def _several(schema: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": schema, "minItems": 1}


def _body(*contents: dict[str, Any]) -> dict[str, Any]:
    """Return the description of a request body, from that of each content type."""
    merged = {kind: content for one in contents for kind, content in one.items()}
    return {"requestBody": {"required": True, "content": merged}}


_TEXT = {
    "type": "string",
    "contentEncoding": "base64",
    "description": "An image file in base64, with or without a prefix data:image/...;base64,",
}
# A PNG of one red pixel.
EXAMPLE_IMAGE = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR42mP4z8AAAAMBAQD3A0FDAAAAAElFTkSuQmCC"
)
ONE_IMAGE = _body(
    {"application/octet-stream": {"schema": FILE}},
    _form("image", FILE),
    _json("image", _TEXT, EXAMPLE_IMAGE),
)
SEVERAL_IMAGES = _body(
    _form("images", _several(FILE)),
    _json("images", _several(_TEXT), [EXAMPLE_IMAGE, EXAMPLE_IMAGE]),
)
