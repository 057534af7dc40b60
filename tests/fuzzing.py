"""Requests with images that something happened to, the same ones for the same number.

Every format is among the images, sound and damaged ones, and every form in which the server takes
them; the damage hits the image, the form around it, or both.
"""

import base64
import json
import random
import struct
from collections.abc import Sequence
from dataclasses import dataclass

from tests.hostile_images import hostile_images
from tests.nasty import nasty_files

MAX_BYTES = 20_000  # of an image before the damage
_BOUNDARY = b"frontier"
_NUMBERS = (0, 1, 0x7F, 0x80, 0xFF, 0x7FFF, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF)
_KINDS = ("raw", "form", "json", "batch form", "batch json", "nearest", "v2")
_INFER = "/v2/models/scda/infer"


@dataclass(frozen=True)
class Input:
    """One request; `kind` says in which form the image comes."""

    kind: str
    path: str
    content_type: str
    body: bytes


def seeds() -> list[bytes]:
    """Return the images that the inputs are made of."""
    files = {name: file.data for name, file in nasty_files().items()} | hostile_images()
    return [data for data in files.values() if len(data) <= MAX_BYTES]


def fuzz_input(number: int, images: Sequence[bytes]) -> Input:
    """Return the input of this number, made of `images`."""
    chance = random.Random(number)
    kind = _KINDS[number % len(_KINDS)]
    files = [_damaged(chance, chance.choice(images), images) for _ in range(chance.randint(1, 3))]
    if kind == "raw":
        return Input(kind, "/v1/predict", "application/octet-stream", files[0])
    if kind == "nearest":
        return Input(kind, "/v1/nearest", "image/jpeg", files[0])
    several = kind.startswith("batch")
    path = "/v1/predict_batch" if several else "/v1/predict"
    if kind.endswith("form"):
        body = _form("images" if several else "image", files if several else files[:1])
        content_type = f"multipart/form-data; boundary={_BOUNDARY.decode()}"
    else:
        path = _INFER if kind == "v2" else path
        content_type, body = "application/json", json.dumps(_document(kind, files)).encode()
    if chance.random() < 0.3:
        body = _damaged(chance, body, images)
    return Input(kind, path, content_type, body)


def _document(kind: str, files: Sequence[bytes]) -> object:
    texts = [base64.b64encode(data).decode() for data in files]
    if kind == "v2":
        tensor = {"name": "image", "shape": [len(texts)], "datatype": "BYTES", "data": texts}
        return {"inputs": [tensor]}
    return {"images": texts} if kind == "batch json" else {"image": texts[0]}


def _form(field: str, files: Sequence[bytes]) -> bytes:
    head = b'Content-Disposition: form-data; name="%s"; filename="a"\r\n\r\n' % field.encode()
    parts = [b"--" + _BOUNDARY + b"\r\n" + head + data + b"\r\n" for data in files]
    return b"".join(parts) + b"--" + _BOUNDARY + b"--\r\n"


def _damaged(chance: random.Random, data: bytes, others: Sequence[bytes]) -> bytes:
    """Overwrite, cut out, insert, repeat, splice or cut off, up to six times."""
    damaged = bytearray(data)
    for _ in range(chance.randint(0, 6)):
        start = chance.randint(0, len(damaged))
        end = min(len(damaged), start + chance.randint(1, 64))
        match chance.randrange(7):
            case 0:
                damaged[start:end] = chance.randbytes(end - start)
            case 1:
                order = chance.choice("<>") + chance.choice("BHI")
                size = struct.calcsize(order)
                number = chance.choice(_NUMBERS) % 256**size
                damaged[start : start + size] = struct.pack(order, number)
            case 2:
                del damaged[start:end]
            case 3:
                damaged[start:start] = chance.randbytes(chance.randint(1, 64))
            case 4:
                damaged[start:start] = damaged[start:end] * chance.randint(1, 50)
            case 5:
                other = chance.choice(others)
                damaged[start:] = other[chance.randint(0, len(other)) :]
            case _:
                if chance.random() < 0.3:  # most of what follows would be the same
                    del damaged[start:]
    return bytes(damaged)
