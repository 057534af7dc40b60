"""JSON that arrives in pieces is what `json` and `base64` make of the whole."""

import asyncio
import base64
import contextlib
import json
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scda.serve.http.bodies.base64_json import LONG, Document, read_json
from scda.serve.http.errors import RequestError

FILE = bytes(range(256)) * 3
TEXT = base64.b64encode(FILE).decode()


def read(*chunks: bytes, max_files: int = 8) -> Document:
    async def stream() -> AsyncIterator[bytes]:
        for chunk in chunks:
            yield chunk

    return asyncio.run(read_json(stream(), max_files=max_files))


def image_of(*chunks: bytes, **limits: int) -> bytes:
    document = read(*chunks, **limits)
    return document.file(document.field("image", "an example"), "the image")


def refusal(*chunks: bytes, **limits: int) -> RequestError:
    with pytest.raises(RequestError) as refused:
        image_of(*chunks, **limits)
    return refused.value


def pieces(body: bytes, cuts: Sequence[int]) -> Iterator[bytes]:
    ends = [*sorted(cut % (len(body) + 1) for cut in cuts), len(body)]
    start = 0
    for end in ends:
        yield body[start:end]
        start = end


@given(
    images=st.lists(st.binary(max_size=300), min_size=1, max_size=4),
    other=st.text(max_size=200),
    cuts=st.lists(st.integers(0, 3_000), max_size=12),
    escape=st.sampled_from([None, "/", "+", "="]),
    indent=st.sampled_from([None, 2]),
)
def test_any_division_gives_every_image(
    images: list[bytes], other: str, cuts: list[int], escape: str | None, indent: int | None
) -> None:
    texts = [base64.b64encode(data).decode() for data in images]
    body = json.dumps({other: 1, "other": [other], "images": texts}, indent=indent)
    if escape:
        body = body.replace(escape, rf"\u{ord(escape):04x}")
    document = read(*pieces(body.encode(), cuts))
    found = document.list_field("images", "an example")
    assert [document.file(text, "an image") for text in found] == images


@given(st.binary(max_size=200), st.lists(st.integers(0, 200), max_size=4))
def test_any_other_bytes_are_refused_or_read(body: bytes, cuts: list[int]) -> None:
    with contextlib.suppress(RequestError):
        assert isinstance(read(*pieces(b'{"image": "' + body, cuts)).value, dict)


@pytest.mark.parametrize("size", range(LONG * 3 // 4 - 4, LONG * 3 // 4 + 4))
def test_text_about_the_length_of_a_long_string_is_read_whole_and_byte_by_byte(size: int) -> None:
    file = FILE[:size]
    body = b'{"image":"%b"}' % base64.b64encode(file)
    assert image_of(body) == file
    document = read(*(bytes([byte]) for byte in body))
    assert document.file(document.value["image"], "the image") == file


@pytest.mark.parametrize("file", [FILE, FILE[:7]])
@pytest.mark.parametrize(
    "form", ["{}", "data:image/jpeg;base64,{}", "DATA:;Base64,{}", r"data:image\/png;base64,{}"]
)
def test_data_urls_line_breaks_both_alphabets_and_missing_padding_are_read(
    file: bytes, form: str
) -> None:
    standard, url_safe = base64.b64encode(file), base64.urlsafe_b64encode(file)
    lines = base64.encodebytes(file)
    for text in (standard, url_safe, standard.rstrip(b"="), lines.replace(b"\n", rb"\r\n"), lines):
        assert image_of(b'{"image": "%b"}' % form.format(text.decode()).encode()) == file


@pytest.mark.parametrize("filler", ["", "A" * LONG])
@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("http://127.0.0.1/x.jpg", "is an address, and this server fetches nothing"),
        ("file:///etc/passwd", "is an address"),
        ("data:image/svg+xml,<svg/>", "is a data: URL without base64"),
        ("data:image/png;base64", "is a data: URL without base64"),
        ("photo!.jpg", "has the character '!'"),
        ("AAAA=AAA", "is not base64"),
        ("A", "it is cut"),
        ("é", "is not base64"),
    ],
)
def test_what_is_not_base64_is_named(text: str, reason: str, filler: str) -> None:
    body = json.dumps({"image": text + filler if text != "A" else filler + text})
    refused = refusal(body.encode())
    assert refused.code == "bad_request"
    assert str(refused).startswith("the image is")
    assert reason in str(refused)


def test_nothing_follows_padding_also_where_the_text_is_decoded_in_parts() -> None:
    body = b'{"image": "%b"}' % (base64.b64encode(FILE[:100]) * 2)
    for cut in range(len(body)):
        assert "is not base64: it is cut" in str(refusal(body[:cut], body[cut:]))


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "the body is not JSON: Expecting value"),
        (b'{"image": ', "the body is not JSON"),
        (b'{"image": "' + TEXT.encode(), "the body is not JSON: Unterminated string"),
        (b'{"image": "AAAA', "the body is not JSON: Unterminated string"),
        (rb'{"image": "\u00zz' + TEXT.encode() + b'"}', r"Invalid \escape"),
        (b'{"image": "\\x' + TEXT.encode() + b'"}', r"Invalid \escape"),
        (b'{"image": "\xff"}', "it is not UTF-8"),
        (b'{"a": ' * 5_000 + b"1" + b"}" * 5_000, "it is nested too deeply"),
        (b'{"image": ' + b"9" * 10_000 + b"}", "a number has too many digits"),
        (b"[]", "the JSON is a list; expected an example"),
        (b'"x"', "the JSON is a string"),
        (b'{"img": "AAAA"}', "the JSON has no field 'image'; expected an example"),
        (b'{"image": 5}', "the image is a number; expected a file as base64 text"),
        (b'{"image": null}', "the image is null"),
        (b'{"image": ["AAAA"]}', "the image is a list"),
        (b'{"image": true}', "the image is a truth value"),
    ],
)
def test_a_document_of_another_shape_is_refused_in_words(body: bytes, reason: str) -> None:
    refused = refusal(body)
    assert (refused.code, reason in str(refused)) == ("bad_request", True), str(refused)


def test_a_list_has_an_entry() -> None:
    for value, found in (([], "an empty list"), (None, "null"), ({}, "an object")):
        document = read(json.dumps({"images": value}).encode())
        with pytest.raises(RequestError, match=f"the field 'images' is {found}; expected an exam"):
            document.list_field("images", "an example")


def test_a_document_is_small_beside_its_files() -> None:
    for body in (b'{"x": [' + b"0," * 100_000, b'["", ' * 100_000, b"[" + b'"ab",' * 50_000):
        assert refusal(body).code == "too_many_bytes"
    many: dict[str, Any] = {"images": [TEXT] * 5_000}
    assert len(read(json.dumps(many).encode(), max_files=5_000).value["images"]) == 5_000
    assert refusal(json.dumps(many).encode(), max_files=8).code == "too_many_bytes"


def test_a_long_string_that_is_no_file_harms_nothing() -> None:
    note = 'said "hello" \\ to http://x ' * 20
    body = json.dumps({"note": note, note: 1, "image": TEXT})
    assert image_of(body.encode()) == FILE
