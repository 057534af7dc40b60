"""HEIC, the photographs of phones; the files were written by pillow-heif 1.8.1."""

import random
from pathlib import Path

import numpy as np
import pytest

from scda.models.decoding.formats import image_format
from scda.models.errors import ImageError
from scda.models.headers.cost import may_be_cheap
from scda.models.images import check_image, read_image
from scda.models.limits import ImageLimits
from tests.colour_profiles import DISPLAY_P3, in_srgb
from tests.nasty import COLOURS, SIZE, encode, four

FOLDER = Path(__file__).parents[2] / "fixtures" / "heic"
FOUR = (FOLDER / "four.heic").read_bytes()
TURNED = (FOLDER / "turned-p3.heic").read_bytes()  # and its colours are those of Display P3


def quadrants(data: bytes) -> "np.ndarray[tuple[int, int], np.dtype[np.int64]]":
    image = np.asarray(read_image(data), int)
    return np.stack([image[y, x] for y in (12, 36) for x in (16, 48)])


def code(data: bytes) -> str:
    try:
        read_image(data)
    except ImageError as error:
        return error.code
    return "ok"


def test_a_heic_is_read_and_counts_as_costly() -> None:
    np.testing.assert_allclose(quadrants(FOUR), COLOURS, atol=4)
    check_image(FOUR)
    assert image_format(FOUR) == "HEIF"
    assert not may_be_cheap("HEIF", FOUR)


def test_it_is_turned_once_and_its_colours_are_converted() -> None:
    assert read_image(TURNED).size == SIZE
    expected = in_srgb(np.array(COLOURS, np.uint8), DISPLAY_P3)
    np.testing.assert_allclose(quadrants(TURNED), expected, atol=6)


def test_its_pixels_are_limited() -> None:
    limits = ImageLimits(max_pixels=SIZE[0] * SIZE[1] - 1)
    for read in (check_image, read_image):
        with pytest.raises(ImageError, match="the limit is 3,071") as caught:
            read(FOUR, limits)
        assert caught.value.code == "too_many_pixels"


@pytest.mark.parametrize("brand", [b"mif1", b"msf1"])
def test_the_brands_tell_heic_from_avif(brand: bytes) -> None:
    assert image_format(FOUR[:8] + brand + FOUR[12:]) == "HEIF"
    avif = encode(four(), "AVIF")
    assert image_format(avif) == image_format(avif[:8] + brand + avif[12:]) == "AVIF"


def test_a_cut_file_is_refused_and_a_damaged_one_has_our_errors() -> None:
    for length in range(0, len(TURNED) - 1, 100):
        assert code(TURNED[:length]) in {"empty", "not_an_image", "cannot_decode"}
    rng = random.Random(0)
    for _ in range(100):
        damaged = bytearray(TURNED)
        for _place in range(rng.randint(1, 4)):
            damaged[rng.randrange(len(TURNED))] = rng.randrange(256)
        assert code(bytes(damaged)) in {"ok", "not_an_image", "cannot_decode", "too_many_pixels"}
