"""Read the images that a request uploads, within limits that are checked while reading."""

from collections.abc import AsyncIterator, Sequence

from fastapi import Request

from scda.serve.http.bodies.base64_json import read_json
from scda.serve.http.bodies.multipart import read_form, too_many_files
from scda.serve.http.errors import RequestError

FRAMING = 64 * 1024  # bytes for what surrounds the files of a form or a JSON document
_FORM, _JSON = "multipart/form-data", "application/json"
_JSON_BEGINS = (b"", b"{", b"[", b'"')  # as no image file does
_JSON_OBJECT = b'{"'
ONE, SEVERAL = '{"image": "<base64>"}', '{"images": ["<base64>", ...]}'


async def read_image_bytes(request: Request, *, max_bytes: int) -> bytes:
    """Return the image of a request: a field `image` of its form or JSON, or its whole body.

    Raises:
        RequestError: With code `bad_request`, `too_many_bytes` or `too_many_files`.
    """
    kind = _content_type(request)
    if kind == _FORM:
        (data,) = await _form_files(request, "image", max_bytes=max_bytes, max_files=1)
        return data
    if kind != _JSON:
        data = b"".join([chunk async for chunk in limited(request, max_bytes)])
        if data.startswith(_JSON_OBJECT):
            hint = f"this looks like JSON; send it with Content-Type: {_JSON}, as {ONE}"
            raise RequestError("not_an_image", hint)
        return data
    stream = limited(request, max_bytes, room=json_room(max_bytes))
    first = await anext(stream, b"")
    if first.lstrip()[:1] in _JSON_BEGINS:
        document = await read_json(_with_first(first, stream), max_files=1)
        data = document.file(document.field("image", ONE), '"image"')
    else:  # an image in spite of its content type
        data = first + b"".join([chunk async for chunk in stream])
    check_size([data], max_bytes)
    return data


async def read_images(request: Request, *, max_bytes: int, max_files: int) -> list[bytes]:
    """Return the images of a request, at least one, in order: the field `images`, form or JSON.

    Args:
        request: The request; its body is read.
        max_bytes: Largest size of all images together.
        max_files: Largest number of images.

    Raises:
        RequestError: With code `bad_request`, `too_many_bytes` or `too_many_files`.
    """
    kind = _content_type(request)
    if kind == _FORM:
        return await _form_files(request, "images", max_bytes=max_bytes, max_files=max_files)
    if kind != _JSON:
        raise RequestError(
            "bad_request",
            "expected multipart/form-data with the field 'images', or application/json with "
            + SEVERAL,
        )
    stream = limited(request, max_bytes, room=json_room(max_bytes))
    document = await read_json(stream, max_files=max_files)
    texts = document.list_field("images", SEVERAL)
    if len(texts) > max_files:
        raise too_many_files(max_files)
    files = [document.file(text, f'"images"[{i}]') for i, text in enumerate(texts)]
    check_size(files, max_bytes)
    return files


async def _form_files(
    request: Request, field: str, *, max_bytes: int, max_files: int
) -> list[bytes]:
    stream = limited(request, max_bytes, room=FRAMING)
    files = await read_form(stream, request.headers["content-type"], field, max_parts=max_files)
    check_size(files, max_bytes)
    return files


def _content_type(request: Request) -> str:
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def json_room(max_bytes: int) -> int:
    """Return how much longer a body in base64 may be, line breaks and escapes included."""
    return max_bytes // 2 + FRAMING


async def _with_first(first: bytes, stream: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield first
    async for chunk in stream:
        yield chunk


def check_size(files: Sequence[bytes], max_bytes: int) -> None:
    """Check the size of all files together.

    Raises:
        RequestError: With code `too_many_bytes`.
    """
    if sum(map(len, files)) > max_bytes:
        raise _too_many_bytes(max_bytes)


async def limited(request: Request, max_bytes: int, *, room: int = 0) -> AsyncIterator[bytes]:
    """Yield the body up to the limit, which is checked independently of the Content-Length.

    Args:
        request: The request; its body is read.
        max_bytes: Largest size of the files in the body.
        room: How much longer the body may be.

    Raises:
        RequestError: With code `too_many_bytes`.
    """
    announced = request.headers.get("content-length", "")
    if announced.isdecimal() and int(announced) > max_bytes + room:
        raise _too_many_bytes(max_bytes)
    seen = 0
    async for chunk in request.stream():
        seen += len(chunk)
        if seen > max_bytes + room:
            raise _too_many_bytes(max_bytes)
        yield chunk


def _too_many_bytes(max_bytes: int) -> RequestError:
    return RequestError(
        "too_many_bytes", f"the upload is larger than {max_bytes:,} bytes, the limit of this server"
    )
