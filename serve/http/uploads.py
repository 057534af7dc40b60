"""Read the images that a request uploads, within limits that are checked while reading."""

from collections.abc import AsyncIterator

from fastapi import Request

from scda.serve.http.errors import RequestError
from scda.serve.http.multipart import read_form

_FRAMING = 64 * 1024  # bytes for the boundaries, headers and other fields of a form


async def read_image_bytes(request: Request, *, max_bytes: int) -> bytes:
    """Return the image of a request: its form field `image`, or its whole body.

    Raises:
        RequestError: With code `bad_request`, `too_many_bytes` or `too_many_files`.
    """
    if _is_form(request):
        (data,) = await read_form_files(request, "image", max_bytes=max_bytes, max_files=1)
        return data
    return b"".join([chunk async for chunk in _limited(request, max_bytes)])


async def read_form_files(
    request: Request, field: str, *, max_bytes: int, max_files: int
) -> list[bytes]:
    """Return the files of one field of a multipart form, at least one, in order.

    Args:
        request: The request; its body is read.
        field: Name of the form field.
        max_bytes: Largest size of all files together.
        max_files: Largest number of files.

    Raises:
        RequestError: With code `bad_request`, `too_many_bytes` or `too_many_files`.
    """
    if not _is_form(request):
        raise RequestError("bad_request", f"expected multipart/form-data with the field {field!r}")
    stream = _limited(request, max_bytes + _FRAMING)
    files = await read_form(stream, request.headers["content-type"], field, max_parts=max_files)
    if sum(map(len, files)) > max_bytes:
        raise _too_many_bytes(max_bytes)
    return files


def _is_form(request: Request) -> bool:
    kind = request.headers.get("content-type", "").partition(";")[0]
    return kind.strip().lower() == "multipart/form-data"


async def _limited(request: Request, max_bytes: int) -> AsyncIterator[bytes]:
    """Yield the body up to the limit, which is checked independently of the Content-Length."""
    announced = request.headers.get("content-length", "")
    if announced.isdecimal() and int(announced) > max_bytes:
        raise _too_many_bytes(max_bytes)
    seen = 0
    async for chunk in request.stream():
        seen += len(chunk)
        if seen > max_bytes:
            raise _too_many_bytes(max_bytes)
        yield chunk


def _too_many_bytes(max_bytes: int) -> RequestError:
    return RequestError(
        "too_many_bytes", f"the upload is larger than {max_bytes:,} bytes, the limit of this server"
    )
