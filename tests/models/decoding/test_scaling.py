import dataclasses
import io
from typing import Any

import numpy as np
import pytest
from PIL import Image

from scda.models.decoding.reading import DECODER_IN_FULL, Reading
from scda.models.errors import ImageError
from scda.models.images import read_image, read_pixels
from scda.models.preprocess import Pixels, Preprocessing
from tests.models.test_preprocess import natural

SCALED = Preprocessing(resize_px=32, crop_px=28, mean=(127.0,) * 3, std=(128.0,) * 3)
IN_FULL = dataclasses.replace(SCALED, decoder=DECODER_IN_FULL)
# Of 255. Without a look at the part that the last column and row hold, it would be 16 and 4.
MOST, MEAN = 4, 1
PHOTO = natural(401, 303)  # which neither 2, 4 nor 8 divides


def jpeg(image: Image.Image, **options: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, "JPEG", **{"quality": 95, **options})
    return file.getvalue()


def turned(orientation: int) -> bytes:
    exif = Image.Exif()
    exif[0x0112] = orientation
    return jpeg(PHOTO, exif=exif)


def assert_close(one: Pixels, other: Pixels) -> None:
    difference = np.abs(one.astype(int) - other)
    assert difference.max() <= MOST
    assert difference.mean() <= MEAN


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        ((512, 512), (64, 64)),
        ((900, 511), (225, 128)),
        ((255, 256), (128, 128)),
        ((400, 128), (200, 64)),
        ((400, 127), (400, 127)),
        ((64, 3000), (64, 3000)),
        ((63, 20), (63, 20)),
    ],
)
def test_a_jpeg_decodes_at_the_smallest_scale_with_twice_the_pixels(
    size: tuple[int, int], expected: tuple[int, int]
) -> None:
    image = read_image(jpeg(Image.new("RGB", size)), reading=Reading(enough_px=64))
    assert image.size == expected
    assert SCALED.reading == Reading(enough_px=64)


@pytest.mark.parametrize("orientation", range(1, 9))
def test_every_orientation_gives_nearly_the_pixels_of_the_whole(orientation: int) -> None:
    data = turned(orientation)
    assert_close(read_pixels(data, SCALED), read_pixels(data, IN_FULL))


@pytest.mark.parametrize(
    ("mode", "options"),
    [
        ("RGB", {"progressive": True}),
        ("RGB", {"subsampling": 0}),
        ("L", {}),
        ("L", {"progressive": True}),
        ("CMYK", {}),
    ],
)
def test_every_kind_of_jpeg_gives_nearly_the_pixels_of_the_whole(
    mode: str, options: dict[str, Any]
) -> None:
    data = jpeg(PHOTO.convert(mode), **options)
    found = read_pixels(data, SCALED)
    assert not np.array_equal(found, read_pixels(data, IN_FULL))  # it was scaled
    assert_close(found, read_pixels(data, IN_FULL))


@pytest.mark.parametrize(
    "data", [jpeg(PHOTO.resize((100, 63))), jpeg(PHOTO)[:4000], b"\xff\xd8\xff"]
)
def test_a_small_or_damaged_jpeg_is_read_as_ever(data: bytes) -> None:
    said = []
    for form in (SCALED, IN_FULL):
        try:
            said.append(read_pixels(data, form).tobytes())
        except ImageError as error:
            said.append(f"{error.code}: {error}".encode())
    assert said[0] == said[1]


def test_other_formats_decode_in_full() -> None:
    file = io.BytesIO()
    PHOTO.save(file, "PNG")
    data = file.getvalue()
    np.testing.assert_array_equal(read_pixels(data, SCALED), SCALED.apply(PHOTO))
    assert read_image(data, reading=Reading(enough_px=1)).size == PHOTO.size


def test_each_of_several_backbones_reads_the_scale_that_it_reads_alone() -> None:
    below = dataclasses.replace(SCALED, resize_px=100, crop_px=90)
    both, data = dataclasses.replace(SCALED, below=below), jpeg(PHOTO)
    pixels = read_pixels(data, both)
    np.testing.assert_array_equal(pixels[:28, :28], read_pixels(data, SCALED))
    np.testing.assert_array_equal(pixels[28:], read_pixels(data, below))
    assert not pixels[:28, 28:].any()


def test_a_bundle_of_an_earlier_version_decodes_in_full() -> None:
    stored = Preprocessing.from_json(IN_FULL.to_json())
    assert stored == IN_FULL
    data = jpeg(PHOTO)
    np.testing.assert_array_equal(read_pixels(data, stored), SCALED.apply(read_image(data)))
