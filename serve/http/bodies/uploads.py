"""Read the images that a request uploads: as a form, as JSON, or one image as the whole body."""

from collections.abc import AsyncIterator

from scda.serve.http.bodies.base64_json import read_json
from scda.serve.http.bodies.body import Body, joined
from scda.serve.http.bodies.multipart import read_form, too_many_files
from scda.serve.http.errors import RequestError
from scda.serve.http.settings import FRAMING

_FORM, _JSON = "multipart/form-data", "application/json"
_JSON_BEGINS = (b"", b"{", b"[", b'"')  # as no image file does
_JSON_OBJECT = b'{"'
ONE, SEVERAL = '{"image": "<base64>"}', '{"images": ["<base64>", ...]}'


async def read_image(body: Body) -> bytes:
    """Return the image of a request: a field `image` of its form or JSON, or its whole body.

    Raises:
        RequestError: With code `bad_request` or `too_many_files`, or one of `Body.chunks`.
    """
    if body.content_type == _FORM:
        (data,) = await _form_files(body, "image", max_files=1)
        return data
    if body.content_type != _JSON:
        data = await body.read()
        if data.startswith(_JSON_OBJECT):
            hint = f"this looks like JSON; send it with Content-Type: {_JSON}, as {ONE}"
            raise RequestError("not_an_image", hint)
        return data
    stream = body.base64_chunks()
    first = await anext(stream, b"")
    if first.lstrip()[:1] in _JSON_BEGINS:
        document = await read_json(_with_first(first, stream), max_files=1)
        data = document.file(document.field("image", ONE), '"image"')
    else:  # an image in spite of its content type
        data = await joined(stream, first)
    body.check_size([data])
    return data


async def read_images(body: Body) -> list[bytes]:
    """Return the images of a request, at least one, in order: the field `images`, form or JSON.

    Raises:
        RequestError: With code `bad_request` or `too_many_files`, or one of `Body.chunks`.
    """
    if body.content_type == _FORM:
        return await _form_files(body, "images", max_files=body.max_files)
    if body.content_type != _JSON:
        raise RequestError(
            "bad_request",
            "expected multipart/form-data with the field 'images', or application/json with "
            + SEVERAL,
        )
    document = await read_json(body.base64_chunks(), max_files=body.max_files)
    texts = document.list_field("images", SEVERAL)
    if len(texts) > body.max_files:
        raise too_many_files(body.max_files)
    files = [document.file(text, f'"images"[{i}]') for i, text in enumerate(texts)]
    body.check_size(files)
    return files


async def _form_files(body: Body, field: str, *, max_files: int) -> list[bytes]:
    stream, kind = body.chunks(room=FRAMING), body.headers["content-type"]
    files = await read_form(stream, kind, field, max_parts=max_files)
    body.check_size(files)
    return files


async def _with_first(first: bytes, stream: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield first
    async for chunk in stream:
        yield chunk
