"""Read the images of an inference request: base64 in JSON, or the protocol's binary tensors."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from scda.serve.http.bodies.base64_json import Document, parse_json, read_json
from scda.serve.http.bodies.body import Body
from scda.serve.http.bodies.multipart import too_many_files
from scda.serve.http.errors import RequestError
from scda.serve.http.settings import FRAMING
from scda.serve.http.v2.tensors import LENGTH, OUTPUTS, split_elements

# The length of the JSON before the binary tensors, in a request and in an answer.
HEADER_LENGTH = "Inference-Header-Content-Length"
EXAMPLE = '{"inputs": [{"name": "image", "shape": [1], "datatype": "BYTES", "data": ["<base64>"]}]}'


@dataclass(frozen=True)
class InferRequest:
    """An inference request.

    Attributes:
        id: What the client calls the request, to be repeated in the answer.
        images: The bytes of the image files.
        outputs: The outputs asked for, each with whether it is wanted in the binary form.
    """

    id: str | None
    images: list[bytes]
    outputs: Mapping[str, bool]


async def read_request(body: Body) -> InferRequest:
    """Return the inference request in a body.

    Raises:
        RequestError: With code `bad_request` or `too_many_files`, or one of `Body.chunks`.
    """
    document, binary = await _parts(body)
    images = _images(document, binary, body.max_files)
    body.check_size(images)
    return InferRequest(_id(document), images, _outputs(document))


async def _parts(body: Body) -> tuple[Document, bytes]:
    """Return the JSON, and the binary tensors behind it."""
    header = body.headers.get(HEADER_LENGTH)
    if header is None:
        return await read_json(body.base64_chunks(), max_files=body.max_files), b""
    data = await body.read(room=FRAMING + LENGTH.size * body.max_files)
    length = int(header) if header.isdecimal() and len(header) < len(str(FRAMING)) + 1 else -1
    most = min(len(data), FRAMING)
    if not 0 < length <= most:
        raise _wrong(f"{HEADER_LENGTH} is {header[:20]!r}; expected 1 to {most:,}")
    return Document(parse_json(data[:length]), []), data[length:]


def _images(document: Document, binary: bytes, max_files: int) -> list[bytes]:
    inputs = document.list_field("inputs", EXAMPLE)
    tensor = inputs[0]
    if len(inputs) != 1 or not isinstance(tensor, dict) or tensor.get("name") != "image":
        raise _wrong(f"expected one input named 'image', as {EXAMPLE}")
    if tensor.get("datatype") != "BYTES":
        raise _wrong("the input 'image' must have the datatype BYTES: each element an image file")
    count = _count(tensor.get("shape"))
    if count > max_files:
        raise too_many_files(max_files)
    size = _parameters(tensor).get("binary_data_size")
    if size is not None:
        if size != len(binary):
            raise _wrong(f"binary_data_size is not the {len(binary):,} bytes behind the JSON")
        return split_elements(binary, count)
    texts = _flat(tensor.get("data"))
    if len(texts) != count:
        raise _wrong(f"the input 'image' has {len(texts)} elements; its shape says {count}")
    return [document.file(text, f"element {i} of 'image'") for i, text in enumerate(texts)]


def _count(shape: Any) -> int:
    """Return the number of elements of a tensor."""
    sizes = shape if isinstance(shape, list) else []
    if not sizes or not all(type(size) is int and 0 < size < 2**31 for size in sizes):
        raise _wrong("the shape of the input 'image' must be a list like [1]")
    return math.prod(sizes)


def _flat(data: Any) -> list[Any]:
    """Return the elements of a tensor, nested or not."""
    entries = data if isinstance(data, list) else []
    while any(isinstance(entry, list) for entry in entries):
        entries = [
            one for entry in entries for one in (entry if isinstance(entry, list) else [entry])
        ]
    return entries


def _id(document: Document) -> str | None:
    name = document.value.get("id")
    if name is not None and (not isinstance(name, str) or document.is_long(name)):
        raise _wrong("the id of the request must be a string of fewer than 128 bytes")
    return name


def _outputs(document: Document) -> dict[str, bool]:
    """Return the outputs that the request names, or all."""
    binary = bool(_parameters(document.value).get("binary_data_output"))
    asked = document.value.get("outputs")
    if not asked:
        return dict.fromkeys(OUTPUTS, binary)
    if not isinstance(asked, list) or not all(_is_output(output) for output in asked):
        raise _wrong(f'expected outputs like [{{"name": "label"}}]; there are {", ".join(OUTPUTS)}')
    return {
        output["name"]: bool(_parameters(output).get("binary_data", binary)) for output in asked
    }


def _is_output(output: Any) -> bool:
    return isinstance(output, dict) and output.get("name") in list(OUTPUTS)  # of any type


def _parameters(value: Mapping[str, Any]) -> Mapping[str, Any]:
    parameters = value.get("parameters")
    return parameters if isinstance(parameters, dict) else {}


def _wrong(message: str) -> RequestError:
    return RequestError("bad_request", message)
