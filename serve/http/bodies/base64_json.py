"""Read JSON that holds files in base64, piece by piece, so that no body is held as text.

A long string is decoded while it arrives and leaves a mark in the document. What remains is small
and is parsed at the end; its size bounds the number of values and their depth.
"""

import json
import re
from collections.abc import AsyncIterator, Sequence
from typing import Any

from scda.serve.http.bodies.base64_text import Base64Text
from scda.serve.http.errors import RequestError

LONG = 128  # bytes of a string that is decoded while it arrives
_MAX_REST = 64 * 1024  # bytes of the document beside its long strings and their marks
_MARK = "\0"  # begins the mark of a long string, followed by its number; never base64

# What a JSON string holds; it ends before the closing quote, and before an escape that is cut.
_CONTENT = re.compile(rb'(?:[^"\\]++|\\(?:["\\/bfnrt]|u[0-9A-Fa-f]{4}))*+')
_QUOTE, _LONGEST_ESCAPE = b'"', 6  # bytes
_KINDS = {dict: "an object", list: "a list", str: "a string", bool: "a truth value"}


class Document:
    """A JSON document whose long strings are decoded already.

    Attributes:
        value: What `json.loads` returns, with marks in place of long strings.
    """

    def __init__(self, value: Any, long_strings: Sequence[Base64Text]) -> None:
        """Keep the value, and the strings that its marks name by their number."""
        self.value, self._long = value, long_strings

    def field(self, name: str, example: str) -> Any:
        """Return a field of the document.

        Raises:
            RequestError: With code `bad_request` and the example, if there is none.
        """
        if not isinstance(self.value, dict):
            raise _wrong(f"the JSON is {_kind(self.value)}; expected {example}")
        if name not in self.value:
            raise _wrong(f"the JSON has no field {name!r}; expected {example}")
        return self.value[name]

    def list_field(self, name: str, example: str) -> list[Any]:
        """Return a field of the document that is a list with at least one entry.

        Raises:
            RequestError: With code `bad_request` and the example, if there is none.
        """
        entries = self.field(name, example)
        if not isinstance(entries, list) or not entries:
            found = _kind(entries) if entries != [] else "an empty list"
            raise _wrong(f"the field {name!r} is {found}; expected {example}")
        return entries

    def file(self, value: Any, where: str) -> bytes:
        """Return the bytes that a string of the document encodes.

        Args:
            value: The string as it stands in the document.
            where: What errors call it.

        Raises:
            RequestError: With code `bad_request`, if it is no string or not base64.
        """
        if not isinstance(value, str):
            raise _wrong(f"{where} is {_kind(value)}; expected a file as base64 text")
        text = self._marked(value)
        if text is None:
            text = Base64Text()
            text.feed(value.encode("utf-8", "replace"))
            text.end()
        if text.problem:
            raise _wrong(f"{where} {text.problem}")
        return bytes(text.data)

    def is_long(self, value: str) -> bool:
        """Return whether a string of the document was too long to be kept as text."""
        return self._marked(value) is not None

    def _marked(self, value: str) -> Base64Text | None:
        number = value.removeprefix(_MARK)
        marked = value.startswith(_MARK) and number.isdecimal() and int(number) < len(self._long)
        return self._long[int(number)] if marked else None


async def read_json(stream: AsyncIterator[bytes], *, max_files: int) -> Document:
    """Return the JSON document in `stream`; the caller limits its size.

    Args:
        stream: Body of the request, in UTF-8.
        max_files: Largest number of files that the caller accepts.

    Raises:
        RequestError: With code `bad_request`, or `too_many_bytes` if the document is large beside
            its files.
    """
    splitter = _Splitter(_MAX_REST + 2 * LONG * max_files)
    async for chunk in stream:
        splitter.feed(chunk)
    return Document(parse_json(splitter.end()), splitter.long_strings)


def parse_json(text: bytes) -> Any:
    """Return the value of a JSON text in UTF-8; the caller limits its size.

    Raises:
        RequestError: With code `bad_request`.
    """
    try:
        # Line breaks inside strings are not JSON, but shell scripts send them: `base64` adds them.
        return json.loads(text.decode("utf-8-sig"), strict=False)
    except (ValueError, RecursionError) as error:
        raise _wrong(f"the body is not JSON: {_reason(error)}") from None


class _Splitter:
    """Divides a JSON text, which arrives in arbitrary chunks, into long strings and the rest."""

    def __init__(self, max_rest: int) -> None:
        self.long_strings: list[Base64Text] = []
        self._rest, self._max_rest = bytearray(), max_rest
        self._pending, self._inside = b"", False  # inside a long string

    def feed(self, chunk: bytes) -> None:
        text, position = self._pending + chunk, 0
        while position < len(text):
            read = self._long_string if self._inside else self._up_to_string
            after = read(text, position)
            if after == position:  # undecided before more has arrived
                break
            position = after
        self._pending = text[position:]
        if len(self._rest) > self._max_rest:
            limit = f"{self._max_rest:,} bytes"
            raise RequestError(
                "too_many_bytes", f"the JSON is larger than {limit} beside its files"
            )

    def end(self) -> bytes:
        """Return the document with marks in place of its long strings."""
        return bytes(self._rest + self._pending)

    def _up_to_string(self, text: bytes, start: int) -> int:
        """Keep a piece of the rest, or a short string; return where to go on."""
        quote = text.find(_QUOTE, start)
        if quote != start:
            end = len(text) if quote < 0 else quote
            self._rest += text[start:end]
            return end
        end = _content_end(text, start + 1)
        if end - start > LONG:
            self._rest += f'"\\u0000{len(self.long_strings)}'.encode()
            self.long_strings.append(Base64Text())
            self._inside = True
            return start + 1
        if text[end : end + 1] != _QUOTE:
            return start
        self._rest += text[start : end + 1]
        return end + 1

    def _long_string(self, text: bytes, start: int) -> int:
        """Decode a piece of a long string; return where to go on."""
        end, decoded = _content_end(text, start), self.long_strings[-1]
        decoded.feed(_unescaped(text[start:end]))
        if text[end : end + 1] != _QUOTE:
            return end
        decoded.end()
        self._rest += _QUOTE
        self._inside = False
        return end + 1


def _content_end(text: bytes, start: int) -> int:
    """Return where the content of a string stops: at its quote, or before what has not arrived."""
    content = _CONTENT.match(text, start)
    end = content.end() if content else start
    if text[end : end + 1] == b"\\" and len(text) - end >= _LONGEST_ESCAPE:
        raise _wrong("the body is not JSON: Invalid \\escape")
    return end


def _unescaped(text: bytes) -> bytes:
    r"""Return a part of a string as it is meant: some programs write `\/` or `\u002b`."""
    if b"\\" not in text:
        return text
    meant: str = json.loads(f'"{text.decode("latin-1")}"', strict=False)
    return meant.encode("latin-1", "replace")


def _reason(error: ValueError | RecursionError) -> str:
    if isinstance(error, json.JSONDecodeError):
        return error.msg  # without its position, which counts in what remains of the document
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    return "it is not UTF-8" if isinstance(error, UnicodeError) else "a number has too many digits"


def _wrong(message: str) -> RequestError:
    return RequestError("bad_request", message)


def _kind(value: Any) -> str:
    return "null" if value is None else _KINDS.get(type(value), "a number")
