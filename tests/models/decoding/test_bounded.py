import io
import time
from collections.abc import Callable

import pytest
from PIL import Image

from scda.models.decoding.bounded import MAX_EXIF, MAX_READS, BoundedReader
from scda.models.decoding.unguarded import read_image
from scda.models.errors import ImageError
from tests.bundles import picture
from tests.nasty import chunk

MEGABYTES = 1_000_000
JPEG = picture("red")


def segments(marker: int, payload: bytes, count: int) -> bytes:
    segment = b"\xff" + bytes([marker]) + (len(payload) + 2).to_bytes(2) + payload
    return JPEG[:2] + segment * count + JPEG[2:]


def test_a_file_is_read_as_ever_until_its_pieces_are_used_up() -> None:
    file = BoundedReader(b"x" * (MAX_READS + 2))
    assert [file.read(1) for _ in range(MAX_READS)] == [b"x"] * MAX_READS
    with pytest.raises(ImageError, match="too many small segments") as caught:
        file.read(1)
    assert caught.value.code == "cannot_decode"


SMALL = {
    "exif": lambda: segments(0xE1, b"Exif\0\0" + b"x" * 50, 4 * MEGABYTES // 60),
    "one byte of exif": lambda: segments(0xE1, b"Exif\0\0x", 4 * MEGABYTES // 11),
    "empty segments": lambda: segments(0xE3, b"", MEGABYTES),
    "png chunks": lambda: png_with(chunk(b"vpAg", b"") * (4 * MEGABYTES // 12)),
    "png pixels": lambda: png_with(chunk(b"IDAT", b"") * (4 * MEGABYTES // 12)),
    "ppm comment": lambda: b"P6\n#" + b"x" * 4 * MEGABYTES + b"\n1 1 255\nabc",
    "gif comment": lambda: gif_with(b"!\xfe" + b"\x01x" * 2 * MEGABYTES + b"\0"),
}


def png_with(chunks: bytes) -> bytes:
    data = picture("red", kind="PNG")
    place = data.index(b"IDAT") - 4
    return data[:place] + chunks + data[place:]


def gif_with(blocks: bytes) -> bytes:
    data = picture("red", kind="GIF")
    place = data.index(b",", 13)
    return data[:place] + blocks + data[place:]


@pytest.mark.parametrize("make", SMALL.values(), ids=SMALL.keys())
def test_megabytes_of_tiny_pieces_are_refused_at_once(make: Callable[[], bytes]) -> None:
    data = make()
    began = time.process_time()
    with pytest.raises(ImageError, match="too many small segments"):
        read_image(data)
    assert time.process_time() - began < 1  # unguarded, up to 10 seconds


def test_an_ordinary_number_of_pieces_is_read() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    block = exif.tobytes()
    whole = read_image(segments(0xE1, block, 1))
    assert whole.size == (40, 48)  # turned by its EXIF tag
    long = segments(0xE1, b"Exif\0\0" + b"x" * 60_000, MAX_EXIF - 1)
    assert read_image(long).size == (48, 40)
    file = io.BytesIO()
    Image.effect_noise((1000, 1000), 50).save(file, "PNG")
    data = file.getvalue()
    body = data[data.index(b"IDAT") + 4 :]
    assert read_image(data).tobytes() == Image.open(io.BytesIO(data)).convert("RGB").tobytes()
    assert len(body) > 500_000
