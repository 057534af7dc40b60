"""Whatever bytes come in: an answer or an error of ours, and never a bug's."""

import asyncio
import base64
import json
import warnings
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from scda.models.predictor import Predictor
from scda.serve.http.application import create_app
from scda.serve.http.errors import STATUS
from scda.serve.http.settings import Settings
from tests.nasty import nasty_files

_SEEDS = sorted((file.data for file in nasty_files().values() if len(file.data) < 20_000), key=len)
_BOUNDARY = b"frontier"
_HEAD = b'Content-Disposition: form-data; name="image"; filename="a.jpg"\r\n\r\n'
_CODES = {code for code, status in STATUS.items() if status < 500}
_FEW = settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))


@pytest.fixture(scope="module")
def asker(predictor: Predictor, bundle: Path) -> Iterator["Asker"]:
    limits = Settings(bundle=bundle, max_bytes=200_000, max_pixels=1_000_000)
    with Asker(predictor, limits) as asker:
        yield asker


class Asker:
    """The application in this process, on one event loop."""

    def __init__(self, predictor: Predictor, limits: Settings) -> None:
        transport = httpx.ASGITransport(app=create_app(predictor, limits))
        self._client = httpx.AsyncClient(transport=transport, base_url="http://localhost")
        self._runner = asyncio.Runner()

    def __enter__(self) -> "Asker":
        self._runner.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._runner.run(self._client.aclose())
        self._runner.close()

    def check(self, path: str, body: bytes, content_type: bytes) -> None:
        """Send a body; an answer must come in time, and be one of ours."""
        post = self._client.post(path, content=body, headers=[(b"Content-Type", content_type)])
        answer = self._runner.run(asyncio.wait_for(post, 60))
        if answer.status_code != 200:
            error = answer.json()["error"]
            assert error["code"] in _CODES, error
            assert answer.status_code == STATUS[error["code"]]


@st.composite
def images(draw: st.DrawFn) -> bytes:
    """Draw the bytes of an image file that something happened to."""
    data = bytearray(draw(st.sampled_from(_SEEDS)))
    for _ in range(draw(st.integers(0, 6))):
        _damage(draw, data)
    return bytes(data)


def _damage(draw: st.DrawFn, data: bytearray) -> None:
    """Overwrite, cut out, insert or cut off, in place."""
    start = draw(st.integers(0, len(data)))
    what = draw(st.sampled_from(["overwrite", "remove", "insert", "truncate"]))
    if what == "truncate":
        del data[start:]
    elif what == "remove":
        del data[start : start + draw(st.integers(1, 64))]
    else:
        noise = draw(st.binary(min_size=1, max_size=16))
        data[start : start + (len(noise) if what == "overwrite" else 0)] = noise


@st.composite
def forms(draw: st.DrawFn) -> bytes:
    """Draw a multipart form that something happened to."""
    parts = draw(st.lists(st.one_of(images(), st.binary(max_size=64)), max_size=3))
    pieces = [b"--" + _BOUNDARY + b"\r\n" + _HEAD + part + b"\r\n" for part in parts]
    data = bytearray(b"".join(pieces) + b"--" + _BOUNDARY + b"--\r\n")
    for _ in range(draw(st.integers(0, 4))):
        _damage(draw, data)
    return bytes(data)


@st.composite
def documents(draw: st.DrawFn) -> bytes:
    """Draw JSON with images in base64 that something happened to."""
    files = draw(st.lists(images(), min_size=1, max_size=3))
    texts = [base64.b64encode(data).decode() for data in files]
    data = bytearray(json.dumps({"image": texts[0], "images": texts}).encode())
    for _ in range(draw(st.integers(0, 3))):
        _damage(draw, data)
    return bytes(data)


_RAW = st.one_of(images(), st.binary(max_size=300))
_TYPES = st.one_of(
    st.just(b"multipart/form-data; boundary=" + _BOUNDARY),
    st.binary(max_size=60).map(lambda noise: b"multipart/form-data;" + _printable(noise)),
    st.binary(max_size=60).map(lambda noise: _printable(noise) or b"x"),
)
_ROUTES = st.sampled_from(["/v1/predict", "/v1/predict_batch"])


def _printable(noise: bytes) -> bytes:
    """Return what a header may hold."""
    return bytes(byte for byte in noise if byte >= 0x20 and byte != 0x7F).strip()


@_FEW
@given(body=_RAW)
def test_damaged_images(asker: Asker, body: bytes) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Pillow's, about damaged files
        asker.check("/v1/predict", body, b"application/octet-stream")


@_FEW
@given(path=_ROUTES, body=forms(), content_type=_TYPES)
def test_damaged_forms(asker: Asker, path: str, body: bytes, content_type: bytes) -> None:
    asker.check(path, body, content_type)


@_FEW
@given(path=_ROUTES, body=documents())
def test_damaged_json(asker: Asker, path: str, body: bytes) -> None:
    asker.check(path, body, b"application/json")
