"""The OpenAPI description of the protocol's routes: their answers, errors and request body."""

from dataclasses import dataclass
from typing import Any

from scda.serve.http.errors import STATUS
from scda.serve.http.openapi import EXAMPLE_IMAGE, FILE, reference
from scda.serve.http.v2.tensors import OUTPUTS


@dataclass(frozen=True)
class Live:
    """Whether the server runs."""

    live: bool


@dataclass(frozen=True)
class Ready:
    """Whether the server answers predictions."""

    ready: bool


@dataclass(frozen=True)
class ServerMetadata:
    """The server, and the extensions of the protocol that it has."""

    name: str
    version: str
    extensions: tuple[str, ...]


@dataclass(frozen=True)
class TensorMetadata:
    """The name and type of a tensor; a size of -1 is the number of images."""

    name: str
    datatype: str
    shape: tuple[int, ...]


@dataclass(frozen=True)
class ModelMetadata:
    """The tensors of the model."""

    name: str
    versions: tuple[str, ...]  # the id of the served model
    platform: str
    inputs: tuple[TensorMetadata, ...]
    outputs: tuple[TensorMetadata, ...]


@dataclass(frozen=True)
class OutputTensor:
    """One output for every image."""

    name: str
    datatype: str
    shape: list[int]
    data: list[str | float | bool]


@dataclass(frozen=True)
class InferAnswer:
    """The outputs that were asked for."""

    model_name: str
    model_version: str
    outputs: list[OutputTensor]
    id: str | None = None


@dataclass(frozen=True)
class ErrorText:
    """An error in the shape of the protocol: its code and message as one text."""

    error: str


ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": ErrorText} for status in sorted({*STATUS.values()})
}
ANSWERS: dict[int | str, dict[str, Any]] = {
    200: {"content": {"application/octet-stream": {"schema": FILE}}},  # with binary tensors
    **ERRORS,
}
_PARAMETERS = {"type": "object", "additionalProperties": True}
SCHEMAS: dict[str, Any] = {
    "InputTensor": {
        "type": "object",
        "description": "Image files in base64.",
        "required": ["name", "shape", "datatype", "data"],
        "properties": {
            "name": {"const": "image"},
            "shape": {"type": "array", "items": {"type": "integer"}},
            "datatype": {"const": "BYTES"},
            "parameters": _PARAMETERS,
            "data": {"type": "array", "items": {"type": "string"}},
        },
    },
    "OutputName": {"type": "string", "enum": list(OUTPUTS)},
    "RequestedOutput": {
        "type": "object",
        "description": "An output that is wanted.",
        "required": ["name"],
        "properties": {
            "name": reference("OutputName"),
            "parameters": _PARAMETERS,
        },
    },
    "InferRequest": {
        "type": "object",
        "description": "Images, and which outputs are wanted; by default all.",
        "required": ["inputs"],
        "properties": {
            "id": {"type": "string"},
            "parameters": _PARAMETERS,
            "inputs": {
                "type": "array",
                "minItems": 1,
                "maxItems": 1,
                "items": reference("InputTensor"),
            },
            "outputs": {"type": "array", "items": reference("RequestedOutput")},
        },
    },
}
_BYTES = {"name": "image", "shape": [1], "datatype": "BYTES"}
REQUEST = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {
                "example": {"id": "1", "inputs": [{**_BYTES, "data": [EXAMPLE_IMAGE]}]},
                "schema": reference("InferRequest"),
            }
        },
    }
}
