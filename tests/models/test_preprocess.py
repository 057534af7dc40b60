import dataclasses
import json
from typing import Any

import numpy as np
import pytest
from PIL import Image

from scda.models.decoding.reading import DECODER_IN_FULL
from scda.models.errors import GateError
from scda.models.preprocess import Pixels, Preprocessing

PREPROCESSING = Preprocessing(
    resize_px=256, crop_px=224, mean=(127.0, 127.0, 127.0), std=(128.0, 128.0, 128.0)
)
CHANGES: dict[str, Any] = {
    "resize_px": 257,
    "crop_px": 223,
    "mean": (127.0, 127.0, 126.0),
    "std": (128.0, 127.0, 128.0),
    "interpolation": "bilinear",
    "decoder": "another",
    "below": PREPROCESSING,
}
SMALLER = dataclasses.replace(PREPROCESSING, resize_px=100, crop_px=90)


def resized_then_cropped(image: Image.Image, preprocessing: Preprocessing) -> Pixels:
    """The definition: the shorter side becomes `resize_px`, then the centre is cut out."""
    scale = preprocessing.resize_px / min(image.size)
    width, height = (round(side * scale) for side in image.size)
    resized = image.resize((width, height), Image.Resampling.BICUBIC)
    left, top = (round((side - preprocessing.crop_px) / 2) for side in resized.size)
    right, bottom = left + preprocessing.crop_px, top + preprocessing.crop_px
    return np.asarray(resized.crop((left, top, right, bottom)))


def natural(width: int, height: int) -> Image.Image:
    """An image whose amplitudes fall with frequency, as a photograph's do."""
    rng = np.random.default_rng(0)
    rows, columns = np.fft.fftfreq(height)[:, None], np.fft.fftfreq(width)[None]
    frequency = np.maximum(np.hypot(rows, columns), 1 / max(width, height))
    planes = []
    for _ in range(3):
        spectrum = np.exp(2j * np.pi * rng.random((height, width))) / frequency
        plane = np.fft.ifft2(spectrum).real
        planes.append(127 + 50 * (plane - plane.mean()) / plane.std())
    return Image.fromarray(np.stack(planes, axis=-1).clip(0, 255).astype(np.uint8))


@pytest.mark.parametrize(("resize_px", "crop_px"), [(256, 224), (256, 256), (64, 48)])
@pytest.mark.parametrize("size", [(512, 512), (300, 300), (600, 300), (512, 640), (32, 64)])
def test_equals_resizing_the_whole_and_cropping_the_centre(
    size: tuple[int, int], resize_px: int, crop_px: int
) -> None:
    preprocessing = dataclasses.replace(PREPROCESSING, resize_px=resize_px, crop_px=crop_px)
    image = natural(*size)
    expected = resized_then_cropped(image, preprocessing).astype(int)
    # Pillow may do rows or columns first, and rounds in between.
    assert np.abs(preprocessing.apply(image) - expected).mean() <= 1


@pytest.mark.parametrize("size", [(640, 480), (480, 640), (225, 1000), (1024, 768), (120, 90)])
def test_is_close_where_the_definition_has_to_round_the_place_of_the_crop(
    size: tuple[int, int],
) -> None:
    smooth = natural(24, 24).resize(size, Image.Resampling.BICUBIC)  # half a pixel changes little
    expected = resized_then_cropped(smooth, PREPROCESSING).astype(int)
    assert np.abs(PREPROCESSING.apply(smooth) - expected).mean() <= 2


@pytest.mark.parametrize("size", [(60, 30), (30, 60)])
def test_only_the_central_square_is_seen(size: tuple[int, int]) -> None:
    preprocessing = dataclasses.replace(PREPROCESSING, resize_px=32, crop_px=32)
    image = Image.new("RGB", size, "blue")
    left, top = (size[0] - 30) // 2, (size[1] - 30) // 2
    image.paste("red", (left, top, left + 30, top + 30))
    pixels = preprocessing.apply(image)
    assert (pixels[2:-2, 2:-2] == (255, 0, 0)).all()
    assert (pixels[..., 0] > 127).all()  # at the rim the neighbours outside are mixed in


@pytest.mark.parametrize(
    "size", [(1, 1), (1, 5000), (5000, 1), (2, 3), (223, 224), (225, 223), (7, 4001)]
)
@pytest.mark.parametrize("crop_px", [1, 97, 223, 224, 255, 256])
def test_any_size_becomes_the_models_and_one_colour_stays_one(
    size: tuple[int, int], crop_px: int
) -> None:
    preprocessing = dataclasses.replace(PREPROCESSING, crop_px=crop_px)
    pixels = preprocessing.apply(Image.new("RGB", size, (10, 200, 30)))
    assert pixels.dtype == np.uint8
    np.testing.assert_array_equal(pixels, np.full((crop_px, crop_px, 3), (10, 200, 30)))


def test_no_aspect_ratio_makes_the_square_stick_out() -> None:
    rng = np.random.default_rng(0)
    for width, height, crop_px in rng.integers(1, 300, (200, 3)).tolist():
        preprocessing = dataclasses.replace(PREPROCESSING, resize_px=300, crop_px=crop_px)
        assert preprocessing.apply(Image.new("RGB", (width, height))).shape[0] == crop_px


def test_shrinking_averages_instead_of_skipping_pixels() -> None:
    board = (np.indices((512, 512)).sum(axis=0) % 2 * 255).astype(np.uint8)
    pixels = PREPROCESSING.apply(Image.fromarray(board).convert("RGB"))
    np.testing.assert_allclose(pixels, 127.5, atol=12)


def test_mirroring_the_image_mirrors_the_result() -> None:
    image = natural(301, 200)
    mirrored = PREPROCESSING.apply(image.transpose(Image.Transpose.FLIP_LEFT_RIGHT))
    difference = mirrored[:, ::-1].astype(int) - PREPROCESSING.apply(image)
    assert np.abs(difference).max() <= 1


@pytest.mark.parametrize("name", CHANGES)
def test_the_id_changes_with_every_field(name: str) -> None:
    changed = dataclasses.replace(PREPROCESSING, **{name: CHANGES[name]})
    assert changed.id != PREPROCESSING.id
    assert len(changed.id) == 16


def test_every_field_is_in_the_id() -> None:
    assert CHANGES.keys() == {field.name for field in dataclasses.fields(Preprocessing)}


@pytest.mark.parametrize("below", [None, SMALLER])
def test_what_json_keeps_is_read_again(below: Preprocessing | None) -> None:
    preprocessing = dataclasses.replace(PREPROCESSING, below=below)
    read = Preprocessing.from_json(json.loads(json.dumps(preprocessing.to_json())))
    assert read == preprocessing
    assert read.id == preprocessing.to_json()["id"]


def test_the_id_of_a_single_backbone_is_that_of_earlier_versions() -> None:
    earlier = dataclasses.replace(PREPROCESSING, decoder=DECODER_IN_FULL)
    assert earlier.id == "76082ba2854e49ae"


@pytest.mark.parametrize("order", [1, -1])
def test_squares_of_several_backbones_lie_one_below_the_other(order: int) -> None:
    upper, lower = [PREPROCESSING, SMALLER][::order]
    both = dataclasses.replace(upper, below=lower)
    image = natural(300, 280)
    pixels = both.apply(image)
    assert pixels.shape == both.shape == (224 + 90, 224, 3)
    top, bottom = pixels[: upper.crop_px], pixels[upper.crop_px :]
    for found, alone in ((top, upper), (bottom, lower)):
        side = alone.crop_px
        np.testing.assert_array_equal(found[:, :side], alone.apply(image))
        assert not found[:, side:].any()


@pytest.mark.parametrize("name", ["interpolation", "decoder"])
def test_another_way_of_preparing_is_refused(name: str) -> None:
    changed = dataclasses.replace(PREPROCESSING, **{name: CHANGES[name]})
    with pytest.raises(GateError, match="another version"):
        Preprocessing.from_json(changed.to_json())


@pytest.mark.parametrize(
    "change",
    [
        {"crop_px": 223},
        {"id": "0" * 16},
        {"crop_px": 300},
        {"crop_px": "x"},
        {"rotate": True},
        {"below": None},
        {"below": 5},
        {"below": {}},
        {"below": PREPROCESSING.to_json()},
    ],
)
def test_fields_that_do_not_fit_their_id_are_refused(change: dict[str, Any]) -> None:
    with pytest.raises(GateError, match=r"^preprocessing of another version[^\n]*$"):
        Preprocessing.from_json(PREPROCESSING.to_json() | change)


@pytest.mark.parametrize("missing", ["id", "resize_px", "mean"])
def test_a_missing_field_is_refused(missing: str) -> None:
    fields = PREPROCESSING.to_json()
    del fields[missing]
    with pytest.raises(GateError, match="another version"):
        Preprocessing.from_json(fields)


@pytest.mark.parametrize("crop_px", [0, -1, 257])
def test_a_crop_that_does_not_fit_is_refused(crop_px: int) -> None:
    with pytest.raises(ValueError, match="expected 0 < crop <= resize"):
        dataclasses.replace(PREPROCESSING, crop_px=crop_px)
