"""A file that is no image is named in words that a person understands."""

import base64
import gzip
import io
import re
import tarfile

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scda.models.decoding.formats import FORMATS
from scda.models.errors import ImageError
from scda.models.foreign import describe
from scda.models.images import read_image
from tests.bundles import picture
from tests.nasty import nasty_files


def tar() -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        archive.addfile(tarfile.TarInfo("cat.jpg"))
    return file.getvalue()


def array() -> bytes:
    file = io.BytesIO()
    np.save(file, np.zeros(3))
    return file.getvalue()


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"This is no picture", "text"),
        ("Größe 9 €".encode(), "text"),
        (b"path,label\r\ncat.jpg,cat\r\n", "text"),
        (b"[settings]\nx = 1", "text"),
        (b"\r\n <!DOCTYPE html><html>", "an HTML page"),
        (b"\xef\xbb\xbf<html lang=en>", "an HTML page"),
        (b'<?xml version="1.0"?>\n<svg xmlns="x"/>', "an SVG drawing"),
        (b'<?xml version="1.0"?><a/>', "an XML document"),
        (b'{"image": "x"}', "JSON"),
        (b'[\n  {"a": 1}]', "JSON"),
        (b"data:image/png;base64,iVBORw0KGgo", "a data: URL, which must be decoded first"),
        (base64.b64encode(picture("red")), "base64 text, which must be decoded first"),
        (base64.encodebytes(picture("red", kind="BMP")), "base64 text, which must be decoded"),
        (b"https://example.org/cat.jpg", "an address, and nothing is fetched"),
        (b"version https://git-lfs.github.com/spec/v1\noid", "a pointer of Git LFS"),
        (b"%PDF-1.7\n", "a PDF document"),
        (gzip.compress(b"x", mtime=0), "a gzip archive"),
        (tar(), "a tar archive"),
        (array(), "a NumPy array"),
        (nasty_files()["archive.zip"].data, "a ZIP archive or an office document"),
        (nasty_files()["film.mp4"].data, "a video"),
        (nasty_files()["icon.ico"].data, "an icon (ICO)"),
        (b"RIFF\x00\x00\x00\x00AVI LIST", "a video"),
        (b"RIFF\x00\x00\x00\x00WAVEfmt ", "a sound"),
        (b"\x00\x00\x00\x18ftypcrx \x00\x00", "a camera raw file"),
        (bytes(128) + b"DICM", "a DICOM file"),
        (bytes(1000), "a damaged file, which begins with zeros"),
        (b"\xff", "no known format (its first bytes are ff)"),
        (b"\x01\x02\x03\x04\x05", "no known format (its first bytes are 01 02 03 04)"),
        ("text".encode("utf-16"), "no known format (its first bytes are ff fe 74 00)"),
    ],
)
def test_it_is_named(data: bytes, words: str) -> None:
    assert describe(data).startswith(words)
    expected = ", ".join(FORMATS[:-1])
    with pytest.raises(ImageError, match="this looks like") as refused:
        read_image(data)
    assert refused.value.code == "not_an_image"
    assert f"this looks like {words}" in str(refused.value)
    assert f"; expected an image file: {expected} or" in str(refused.value)


@given(st.binary(max_size=600))
def test_no_words_hold_what_a_stranger_wrote(data: bytes) -> None:
    """Neither control characters nor the quotes of another language reach a log or a row."""
    assert re.fullmatch(r"[A-Za-z0-9 ,:()`-]+", describe(data))
