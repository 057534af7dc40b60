"""The tensors of the protocol: one entry per image, in JSON or in its binary form."""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from scda.models.predictor import Prediction
from scda.serve.http.errors import RequestError

LENGTH = struct.Struct("<I")  # before each element of a binary tensor of BYTES
# Outputs: a field of a prediction, and the datatype of its tensor.
OUTPUTS = {
    "label": "BYTES",
    "class_id": "BYTES",
    "kind": "BYTES",
    "confidence": "FP32",
    "outlier": "BOOL",
    "entropy": "FP32",
    "margin": "FP32",
}
_NUMBERS = {"FP32": "<f4", "BOOL": "|b1"}


@dataclass(frozen=True)
class Tensor:
    """A tensor of the shape (N,): one value for each of N images."""

    name: str
    datatype: str  # BYTES | FP32 | BOOL
    values: Sequence[Any]

    def head(self) -> dict[str, Any]:
        """Return what describes the tensor."""
        return {"name": self.name, "datatype": self.datatype, "shape": [len(self.values)]}

    def to_bytes(self) -> bytes:
        """Return the binary form of the values."""
        if self.datatype in _NUMBERS:
            return np.asarray(self.values, _NUMBERS[self.datatype]).tobytes()
        texts = [str(value).encode() for value in self.values]
        return b"".join(LENGTH.pack(len(text)) + text for text in texts)


def output_tensors(predictions: Sequence[Prediction], names: Sequence[str]) -> list[Tensor]:
    """Return the named outputs of several images."""
    return [
        Tensor(name, OUTPUTS[name], [getattr(prediction, name) for prediction in predictions])
        for name in names
    ]


def split_elements(data: bytes, count: int) -> list[bytes]:
    """Return the elements of a binary tensor of BYTES.

    Args:
        data: The tensor: the length of each element in 4 bytes, little-endian, and the element.
        count: Number of elements that the shape states.

    Raises:
        RequestError: With code `bad_request`, if the tensor has another number or is cut.
    """
    elements, position = [], 0
    for _ in range(count):
        start = position + LENGTH.size
        if start > len(data):
            break
        (length,) = LENGTH.unpack_from(data, position)
        position = start + length
        elements.append(data[start:position])
    if position != len(data) or len(elements) != count:
        message = f"the binary tensor of {len(data):,} bytes does not hold {count} elements"
        raise RequestError("bad_request", f"{message}, each after its length in 4 bytes")
    return elements
