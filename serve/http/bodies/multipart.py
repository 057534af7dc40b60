"""Parse a multipart form in memory, for the parts of one field; the caller limits its size.

A part may or may not carry a file name: only its content decides whether it is an image.
"""

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from python_multipart import MultipartParser
from python_multipart.exceptions import FormParserError
from python_multipart.multipart import parse_options_header

from scda.serve.http.errors import RequestError

if TYPE_CHECKING:
    from python_multipart.multipart import MultipartCallbacks

MAX_OTHERS = 32  # parts of other fields, which are ignored
MAX_HEADERS, MAX_HEADER = 8, 4096  # headers of one part, and bytes of each


async def read_form(
    stream: AsyncIterator[bytes], content_type: str, field: str, *, max_parts: int
) -> list[bytes]:
    """Return the field's parts in order, at least one.

    Args:
        stream: Body of the request.
        content_type: Header of the request, with the boundary.
        field: Name of the form field.
        max_parts: Largest number of parts of the field.

    Raises:
        RequestError: With code `bad_request` or `too_many_files`.
    """
    boundary = parse_options_header(content_type)[1].get(b"boundary")
    if not boundary:
        raise RequestError("bad_request", "the multipart form's Content-Type has no boundary")
    collector = _Collector(field.encode(), max_parts)
    try:
        parser = MultipartParser(
            boundary,
            collector.callbacks(),
            max_header_count=MAX_HEADERS,
            max_header_size=MAX_HEADER,
        )
        async for chunk in stream:
            parser.write(chunk)
    except FormParserError as error:
        raise RequestError("bad_request", f"the body is not a multipart form: {error}") from None
    if not collector.complete:
        raise RequestError("bad_request", "the multipart form ends before its last boundary")
    if not collector.parts:
        raise RequestError("bad_request", f"the multipart form has no field {field!r}")
    return [bytes(part) for part in collector.parts]


class _Collector:
    """Collects the parts from the parser, which reports headers and data in arbitrary chunks."""

    def __init__(self, field: bytes, max_parts: int) -> None:
        self.parts: list[bytearray] = []
        self.complete = False
        self._field, self._max_parts, self._others = field, max_parts, 0
        self._name, self._value, self._selected = bytearray(), bytearray(), False

    def callbacks(self) -> "MultipartCallbacks":
        return {
            "on_part_begin": self._on_part_begin,
            "on_header_begin": self._on_header_begin,
            "on_header_field": lambda data, start, end: self._name.extend(data[start:end]),
            "on_header_value": lambda data, start, end: self._value.extend(data[start:end]),
            "on_header_end": self._on_header_end,
            "on_headers_finished": self._on_headers_finished,
            "on_part_data": self._on_part_data,
            "on_end": self._on_end,
        }

    def _on_part_begin(self) -> None:
        self._selected = False

    def _on_header_begin(self) -> None:
        self._name, self._value = bytearray(), bytearray()

    def _on_header_end(self) -> None:
        if self._name.lower() == b"content-disposition":
            _, options = parse_options_header(bytes(self._value))
            self._selected = options.get(b"name") == self._field

    def _on_headers_finished(self) -> None:
        if self._selected:
            self.parts.append(bytearray())
        else:
            self._others += 1
        if len(self.parts) > self._max_parts:
            raise too_many_files(self._max_parts)
        if self._others > MAX_OTHERS:
            raise RequestError("bad_request", f"the form has more than {MAX_OTHERS} other fields")

    def _on_part_data(self, data: bytes, start: int, end: int) -> None:
        if self._selected:
            self.parts[-1].extend(data[start:end])

    def _on_end(self) -> None:
        self.complete = True


def too_many_files(max_files: int) -> RequestError:
    """Return the error for more files than a request may bring."""
    return RequestError("too_many_files", f"more than {max_files} files in one request")
