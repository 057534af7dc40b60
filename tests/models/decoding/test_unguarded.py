import random
import struct
import subprocess
import sys
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from scda.models.decoding.content import read_bytes
from scda.models.decoding.unguarded import MAX_PLAIN_BYTES, read_image
from scda.models.errors import ImageError
from scda.models.headers.jpeg import MAX_SCANS
from scda.models.images import read_file
from scda.models.limits import MAX_PIXELS, ImageLimits
from tests.nasty import (
    COLOURS,
    ENDINGS,
    SIZE,
    chunk,
    encode,
    four,
    nasty_files,
    png,
    tiff_with_tile,
    turned,
    with_segment,
)

ROOT = Path(__file__).parents[3]
NASTY = nasty_files()
READABLE = sorted(name for name, file in NASTY.items() if file.code == "ok")
REFUSED = sorted(NASTY.keys() - set(READABLE))
CODES = {"ok", "not_an_image", "empty", "too_many_pixels", "cannot_decode"}
TOLERANCE = 3  # of 255, in the middle of a flat quadrant of a good JPEG
ORIENTATIONS = range(1, 9)

# Of a damaged tag Pillow warns and goes on. The reader silences that; pytest undoes it.
pillow_warns = pytest.mark.filterwarnings("ignore::UserWarning")


def pixels(data: bytes) -> NDArray[np.int16]:
    return np.asarray(read_image(data)).astype(np.int16)


def quadrants(image: Image.Image) -> list[Any]:
    width, height = image.size
    return [image.getpixel((x * width // 4, y * height // 4)) for y in (1, 3) for x in (1, 3)]


def outcome(data: bytes, *, max_pixels: int = MAX_PIXELS) -> str:
    try:
        return "ok" if read_image(data, max_pixels=max_pixels).mode == "RGB" else "not RGB"
    except ImageError as error:
        return error.code if len(str(error).splitlines()) == 1 else "not one line"


def in_a_fresh_process(code: str) -> tuple[str, str]:
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT
    )
    return result.stdout, result.stderr


def noise() -> Image.Image:
    values = np.random.default_rng(0).integers(0, 256, (16, 24, 3), dtype=np.uint8)
    return Image.fromarray(values)


@pytest.mark.parametrize("name", READABLE)
def test_a_strange_but_whole_picture_is_read(name: str) -> None:
    file, image = NASTY[name], read_image(NASTY[name].data)
    assert image.mode == "RGB"
    if file.quadrants is not None:
        assert image.size == SIZE
        np.testing.assert_allclose(quadrants(image), file.quadrants, atol=TOLERANCE)


@pytest.mark.parametrize("name", REFUSED)
def test_a_hopeless_file_gets_its_error_code(name: str) -> None:
    assert outcome(NASTY[name].data) == NASTY[name].code


@pytest.mark.parametrize("name", sorted(NASTY))
def test_the_answer_is_the_same_where_warnings_are_no_errors(name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert outcome(NASTY[name].data) == NASTY[name].code


@pytest.mark.parametrize("orientation", ORIENTATIONS)
@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("PNG", {}),
        ("WEBP", {"lossless": True}),
        ("TIFF", {}),
        ("TIFF", {"compression": "tiff_lzw"}),
    ],
)
def test_every_orientation_gives_the_same_upright_pixels(
    kind: str, options: dict[str, Any], orientation: int
) -> None:
    data = turned(orientation, kind, **options)
    np.testing.assert_array_equal(pixels(data), np.asarray(four()))


@pytest.mark.parametrize("orientation", ORIENTATIONS)
def test_an_avif_is_turned_once(orientation: int) -> None:
    image = read_image(turned(orientation, "AVIF", quality=95))
    np.testing.assert_allclose(quadrants(image), COLOURS, atol=TOLERANCE)


@pytest.mark.parametrize("orientation", [0, 9, 65535])
def test_an_orientation_that_means_nothing_turns_nothing(orientation: int) -> None:
    np.testing.assert_array_equal(pixels(turned(orientation, "PNG")), np.asarray(four()))


def test_an_orientation_beside_a_broken_tag_still_counts() -> None:
    exif = Image.Exif()
    exif[0x0112] = 3
    exif[0x8825] = {1: "N"}  # a GPS tag; its type 2, a text, becomes 7, any bytes
    tag, wrong = struct.pack(">HHI", 1, 2, 2), struct.pack(">HHI", 1, 7, 2)
    assert exif.tobytes().count(tag) == 1
    broken = exif.tobytes().replace(tag, wrong)
    upside_down = encode(four().transpose(Image.Transpose.ROTATE_180), "JPEG", quality=95)
    image = read_image(with_segment(upside_down, 0xE1, broken))
    np.testing.assert_allclose(quadrants(image), COLOURS, atol=TOLERANCE)


@pillow_warns
def test_exif_cut_short_turns_nothing() -> None:
    image = read_image(jpeg_with_cut_exif())
    np.testing.assert_allclose(quadrants(image), COLOURS, atol=TOLERANCE)


def jpeg_with_cut_exif() -> bytes:
    exif = Image.Exif()
    exif[0x010E] = "x" * 200
    return with_segment(encode(four(), "JPEG", quality=95), 0xE1, exif.tobytes()[:40])


@pytest.mark.parametrize("alpha", [0, 1, 100, 128, 254, 255])
def test_transparency_is_laid_on_white_in_proportion(alpha: int) -> None:
    image = Image.new("RGBA", (2, 2), (10, 100, 200, alpha))
    expected = [(value * alpha + 255 * (255 - alpha)) / 255 for value in (10, 100, 200)]
    np.testing.assert_allclose(pixels(encode(image, "PNG"))[0, 0], expected, atol=1)


@pytest.mark.parametrize("kind", ["PNG", "TIFF"])
@pytest.mark.parametrize(
    ("stored", "expected"), [(0, 0), (255, 1), (32768, 128), (40 * 257, 40), (65535, 255)]
)
def test_16_bit_greys_are_scaled_to_8(stored: int, expected: int, kind: str) -> None:
    wide = np.full((3, 5), stored, np.uint16)
    values = pixels(encode(Image.fromarray(wide), kind))
    np.testing.assert_array_equal(values, np.full((3, 5, 3), expected))


def test_16_bits_keep_their_order_and_use_the_whole_range() -> None:
    ramp = np.arange(65536, dtype=np.uint16).reshape(256, 256)
    scaled = pixels(encode(Image.fromarray(ramp), "PNG"))[..., 0].ravel()
    assert (np.diff(scaled) >= 0).all()
    np.testing.assert_allclose(scaled, ramp.ravel() / 257, atol=0.5)


def test_a_16_bit_picture_hides_its_transparent_grey() -> None:
    wide = np.array([[1000, 2000]], ">u2")
    data = png(2, 1, depth=16, colour=0, rows=b"\0" + wide.tobytes())
    with_key = data[:33] + chunk(b"tRNS", struct.pack(">H", 1000)) + data[33:]
    assert pixels(with_key)[0, :, 0].tolist() == [255, 8]


def test_a_colour_profile_changes_nothing() -> None:
    data = encode(four(), "PNG", icc_profile=bytes(200))
    np.testing.assert_array_equal(pixels(data), np.asarray(four()))


@pillow_warns
@pytest.mark.parametrize(
    ("kind", "options"),
    [
        *((kind, {}) for kind in ENDINGS.values()),
        ("JPEG", {"progressive": True}),
        ("WEBP", {"lossless": True}),
        ("TIFF", {"compression": "tiff_lzw"}),
        ("JPEG2000", {"no_jp2": True}),
        ("JPEG2000", {"tile_size": (8, 8)}),
    ],
)
def test_a_file_cut_anywhere_is_refused_or_whole(kind: str, options: dict[str, Any]) -> None:
    data = encode(noise(), kind, **options)
    whole = pixels(data)
    for length in range(0, len(data), max(1, len(data) // 150)):
        if outcome(data[:length]) not in CODES - {"ok"}:
            np.testing.assert_array_equal(pixels(data[:length]), whole)


def test_a_jpeg2000_cut_between_two_tiles_is_refused() -> None:
    data = encode(four(), "JPEG2000", tile_size=(32, 24))
    assert outcome(data[: data.rindex(b"\xff\x90")]) == "cannot_decode"


@pillow_warns
@pytest.mark.parametrize("kind", ENDINGS.values())
def test_damaged_bytes_only_ever_raise_our_error_and_soon(kind: str) -> None:
    rng, data, started = random.Random(kind), encode(noise(), kind), time.process_time()
    for attempt in range(150):
        damaged = bytearray(data)
        reach = len(data) if attempt % 2 else min(len(data), 100)  # headers hurt most
        for _ in range(rng.randint(1, 5)):
            damaged[rng.randrange(reach)] = rng.randrange(256)
        assert outcome(bytes(damaged)) in CODES
    assert time.process_time() - started < 10


@pillow_warns
@pytest.mark.parametrize("kind", sorted(set(ENDINGS.values()) - {"BMP", "PPM"}))
def test_random_bytes_behind_a_signature_do_not_decode(kind: str) -> None:
    rng, signature = random.Random(kind), encode(four(), kind)[:16]
    for _ in range(50):
        code = outcome(signature + rng.randbytes(rng.randrange(300)))
        assert code in {"cannot_decode", "too_many_pixels"}


def test_the_pixel_cap_is_exact() -> None:
    data = encode(Image.new("RGB", (10, 7)), "PNG")
    assert outcome(data, max_pixels=70) == "ok"
    assert outcome(data, max_pixels=69) == "too_many_pixels"


def test_the_pixel_cap_says_what_was_found_and_wanted() -> None:
    with pytest.raises(ImageError, match=r"^50,001,000 pixels; the limit is 50,000,000$"):
        read_image(png(50_001, 1_000))


def test_a_higher_cap_than_pillows_own_is_kept() -> None:
    limit = Image.MAX_IMAGE_PIXELS
    assert limit is not None
    data = png(3 * limit, 1)
    assert outcome(data, max_pixels=3 * limit) == "cannot_decode"
    assert outcome(data, max_pixels=3 * limit - 1) == "too_many_pixels"


def test_the_cap_holds_for_a_tile_larger_than_its_picture() -> None:
    assert outcome(tiff_with_tile(96), max_pixels=96 * 96 - 1) == "too_many_pixels"
    assert outcome(tiff_with_tile(96), max_pixels=96 * 96) == "cannot_decode"


def test_bombs_take_no_memory_and_say_nothing_on_the_terminal() -> None:
    code = """
import resource
from tests.models.decoding.test_unguarded import NASTY, outcome
bombs = [f.data for f in NASTY.values() if f.code == "too_many_pixels"]
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
refused = [outcome(data) for data in bombs]
print(refused.count("too_many_pixels"), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""
    output, complaints = in_a_fresh_process(code)
    refused, growth_kib = map(int, output.split())
    assert refused == 7
    assert growth_kib < 20 * 1024
    assert complaints == ""


def test_pillows_warnings_do_not_reach_the_terminal() -> None:
    code = (
        "from tests.models.decoding.test_unguarded import *; print(outcome(jpeg_with_cut_exif()))"
    )
    assert in_a_fresh_process(code) == ("ok\n", "")


def test_a_jpeg_of_very_many_scans_is_refused() -> None:
    jpeg = encode(four(), "JPEG", progressive=True)
    last = jpeg[jpeg.rindex(b"\xff\xda") : -2]
    repeats = MAX_SCANS - jpeg.count(b"\xff\xda")
    assert outcome(jpeg[:-2] + last * repeats + jpeg[-2:]) == "ok"
    assert outcome(jpeg[:-2] + last * (repeats + 1) + jpeg[-2:]) == "cannot_decode"


def test_the_byte_cap_is_exact(tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    path.write_bytes(b"12345")
    assert read_bytes(path, max_bytes=5) == b"12345"
    with pytest.raises(ImageError, match=r"^5 bytes; the limit is 4$") as caught:
        read_bytes(path, max_bytes=4)
    assert caught.value.code == "too_many_bytes"


def test_a_file_is_read_like_its_bytes(tmp_path: Path) -> None:
    path = tmp_path / "no-ending"
    path.write_bytes(encode(four(), "PNG"))
    assert read_file(path).tobytes() == four().tobytes()
    with pytest.raises(ImageError, match="the limit is 100"):
        read_file(path, ImageLimits(max_pixels=100))


@pytest.mark.parametrize("name", ["missing.jpg", "folder", "circle"])
def test_what_cannot_be_opened_is_unreadable(tmp_path: Path, name: str) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "circle").symlink_to("circle")
    with pytest.raises(ImageError, match=r"^(cannot read: [^\n]+|not a regular file)$") as caught:
        read_file(tmp_path / name)
    assert caught.value.code == "unreadable"


def test_many_threads_read_what_one_reads() -> None:
    files = [NASTY[name].data for name in READABLE] * 3
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(read_image, files))
    assert [image.tobytes() for image in together] == [read_image(f).tobytes() for f in files]


def test_a_long_ppm_of_text_is_refused_at_once_and_a_short_one_read() -> None:
    assert read_image(b"P3 1 1 255 10 20 30 ").getpixel((0, 0)) == (10, 20, 30)
    with pytest.raises(ImageError, match="text PPM larger than"):
        read_image(b"P3 1 1 255 10 20 30 " + b" " * MAX_PLAIN_BYTES)
    assert read_image(b"P6 1 1 255\nabc" + b" " * MAX_PLAIN_BYTES).size == (1, 1)
