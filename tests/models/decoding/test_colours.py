import dataclasses
import io
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image, ImageCms

from scda.models.decoding import colours
from scda.models.decoding.formats import image_format
from scda.models.decoding.reading import DECODER_IN_FULL
from scda.models.decoding.unguarded import open_image
from scda.models.headers.cost import is_cheap
from scda.models.images import read_image, read_pixels
from scda.models.preprocess import Preprocessing
from tests.colour_profiles import ADOBE_RGB, DISPLAY_P3, SRGB, in_srgb, profile
from tests.nasty import encode, four

COLOURS = np.array([[200, 100, 50], [30, 180, 40], [128, 128, 128], [240, 220, 60]], np.uint8)
TOLERANCE = 2  # of 255
P3 = profile(DISPLAY_P3)


def stored(kind: str, mode: str, icc_profile: bytes, **options: Any) -> bytes:
    image = Image.fromarray(COLOURS[None].repeat(16, 0).repeat(16, 1))
    image = image.quantize(len(COLOURS)) if mode == "P" else image.convert(mode)
    return encode(image, kind, icc_profile=icc_profile, **options)


def found(data: bytes) -> NDArray[np.int64]:
    """The middle of each colour."""
    return np.asarray(read_image(data), int)[8, 8::16]


@pytest.mark.parametrize(
    ("kind", "mode", "options"),
    [
        ("PNG", "RGB", {}),
        ("PNG", "RGBA", {}),
        ("PNG", "P", {}),
        ("TIFF", "RGB", {}),
        ("WEBP", "RGB", {"lossless": True}),
        ("JPEG", "RGB", {"quality": 98, "subsampling": 0}),
        ("AVIF", "RGB", {"quality": 98, "subsampling": "4:4:4"}),
    ],
)
@pytest.mark.parametrize("primaries", [DISPLAY_P3, ADOBE_RGB])
def test_colours_become_those_of_srgb(
    kind: str, mode: str, options: dict[str, Any], primaries: Any
) -> None:
    expected = in_srgb(COLOURS, primaries)
    shown = found(stored(kind, mode, profile(primaries), **options))
    np.testing.assert_allclose(shown, expected, atol=TOLERANCE + 2 * (kind != "PNG"))
    assert np.abs(expected - COLOURS).max() > 10


def test_transparency_stays_what_it_is() -> None:
    image = Image.new("RGBA", (4, 4), (200, 100, 50, 128))
    shown = np.asarray(read_image(encode(image, "PNG", icc_profile=P3)), float)[0, 0]
    expected = (in_srgb(COLOURS[:1], DISPLAY_P3)[0] * 128 + 255 * 127) / 255
    np.testing.assert_allclose(shown, expected, atol=TOLERANCE)


def test_a_profile_of_another_kind_of_pixels_changes_nothing() -> None:
    data = stored("PNG", "L", P3)
    assert (found(data) == found(stored("PNG", "L", b""))).all()


@pytest.mark.parametrize(
    "same",
    [
        profile(SRGB),
        ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes(),
        bytes(200),
        P3[:100],
        P3[:300],
        P3[:36] + b"none" + P3[40:],
        P3.replace(b"rXYZ", b"xxxx"),
    ],
)
def test_srgb_itself_and_a_broken_profile_change_no_pixel(same: bytes) -> None:
    data = stored("PNG", "RGB", same)
    np.testing.assert_array_equal(found(data), COLOURS)


def test_damaged_profiles_only_ever_change_colours() -> None:
    rng = np.random.default_rng(0)
    for _ in range(200):
        damaged = bytearray(P3)
        for place in rng.integers(0, len(P3), 3):
            damaged[place] = rng.integers(256)
        assert read_image(stored("PNG", "RGB", bytes(damaged))).size == (64, 16)


def test_a_huge_profile_is_left_alone_and_a_large_one_is_costly(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    large = stored("PNG", "RGB", P3 + bytes(100_000))
    assert not is_cheap(open_image(large), large)
    small = stored("PNG", "RGB", P3)
    assert is_cheap(open_image(small), small)
    monkeypatch.setattr(colours, "MAX_PROFILE", len(P3) - 1)
    np.testing.assert_array_equal(found(small), COLOURS)


def test_a_bundle_of_an_earlier_version_ignores_profiles() -> None:
    now = Preprocessing(resize_px=16, crop_px=16, mean=(127.0,) * 3, std=(128.0,) * 3)
    earlier = dataclasses.replace(now, decoder=DECODER_IN_FULL)
    with_profile, without = stored("PNG", "RGB", P3), stored("PNG", "RGB", b"")
    assert read_pixels(with_profile, earlier).tobytes() == read_pixels(without, now).tobytes()
    assert read_pixels(with_profile, now).tobytes() != read_pixels(without, now).tobytes()


def test_a_photograph_of_several_pictures_is_read_as_its_first() -> None:
    file = io.BytesIO()
    options = {"quality": 95, "icc_profile": P3, "append_images": [Image.new("RGB", (8, 8))]}
    four().resize((640, 480)).save(file, "MPO", save_all=True, **options)
    data = file.getvalue()
    assert open_image(data).format == "MPO"
    assert image_format(data) == "JPEG"
    form = Preprocessing(resize_px=32, crop_px=32, mean=(127.0,) * 3, std=(128.0,) * 3)
    plain = encode(four().resize((640, 480)), "JPEG", quality=95, icc_profile=P3)
    np.testing.assert_array_equal(read_pixels(data, form), read_pixels(plain, form))
