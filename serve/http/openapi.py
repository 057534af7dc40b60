"""The parts of the OpenAPI document that types cannot express: uploads and errors."""

from typing import Any

from scda.serve.http.errors import STATUS, ErrorBody

_NOT_FOR_IMAGES = {"not_found", "method_not_allowed", "not_reloaded"}
FILE = {"type": "string", "format": "binary"}


def errors(*codes: str) -> dict[int | str, dict[str, Any]]:
    """Return the error responses with these codes; without codes, those of a route for images."""
    statuses = {STATUS[code] for code in codes or STATUS.keys() - _NOT_FOR_IMAGES}
    return {status: {"model": ErrorBody} for status in sorted(statuses)}


def reference(name: str) -> dict[str, Any]:
    """Return the schema that refers to one of the document's schemas by its name."""
    return {"$ref": f"#/components/schemas/{name}"}


def _object(field: str, schema: dict[str, Any], text: str) -> dict[str, Any]:
    """Return the schema of an object with one field."""
    fields = {"required": [field], "properties": {field: schema}}
    return {"type": "object", "description": text, **fields}


def _several(schema: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": schema, "minItems": 1}


def _body(contents: dict[str, Any]) -> dict[str, Any]:
    """Return the description of a request body, from that of each content type."""
    return {"requestBody": {"required": True, "content": contents}}


_TEXT = {
    "type": "string",
    "contentEncoding": "base64",
    "description": "An image file in base64, with or without a prefix data:image/...;base64,",
}
# A PNG of one red pixel.
EXAMPLE_IMAGE = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR42mP4z8AAAAMBAQD3A0FDAAAAAElFTkSuQmCC"
)
SCHEMAS = {
    "ImageForm": _object("image", FILE, "A form with one image file."),
    "ImagesForm": _object("images", _several(FILE), "A form with several image files."),
    "ImageJson": _object("image", _TEXT, "JSON with one image in base64."),
    "ImagesJson": _object("images", _several(_TEXT), "JSON with several images in base64."),
}
ONE_IMAGE = _body(
    {
        "multipart/form-data": {"schema": reference("ImageForm")},
        "application/json": {
            "schema": reference("ImageJson"),
            "example": {"image": EXAMPLE_IMAGE},
        },
        "application/octet-stream": {"schema": FILE},
    }
)
SEVERAL_IMAGES = _body(
    {
        "multipart/form-data": {"schema": reference("ImagesForm")},
        "application/json": {
            "schema": reference("ImagesJson"),
            "example": {"images": [EXAMPLE_IMAGE, EXAMPLE_IMAGE]},
        },
    }
)
