"""What is made of an image file: the input of a model, its pixels, or a check of its header."""

import json
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any, TypeAlias

import numpy as np
from PIL import Image

from scda.models.decoding.reading import Reading
from scda.models.decoding.scaling import Box, scale
from scda.models.decoding.unguarded import decode, decode_scaled, open_image
from scda.models.preprocess import Pixels, Preprocessing

# The input of a model; all pixels, as they are read; or none, after a check of the header.
Form: TypeAlias = Preprocessing | Reading | None


def make(form: Form, image: Image.Image, data: bytes, *, max_pixels: int) -> Pixels:
    """Return the pixels of an image, (H, W, 3) uint8, in a form; (0, 0, 3) of the header alone.

    Args:
        form: What is made of it.
        image: Image from `open_image`.
        data: Content of its file.
        max_pixels: The bound that it was opened with.

    Raises:
        ImageError: With code `too_many_pixels` or `cannot_decode`.
    """
    if form is None:
        return np.empty((0, 0, 3), np.uint8)
    if isinstance(form, Reading):
        image = decode(image, form, max_pixels=max_pixels)
        if form.fit_px:
            image.thumbnail((form.fit_px, form.fit_px), Image.Resampling.BICUBIC)
        return np.asarray(image)
    return form.apply_each(_as_each_reads(form, image, data, max_pixels))


def _as_each_reads(
    form: Preprocessing, image: Image.Image, data: bytes, max_pixels: int
) -> Iterator[tuple[Image.Image, Box]]:
    """Yield the image for each backbone, decoded once for all that need it at the same scale."""
    decoded: dict[Box, tuple[Image.Image, Box]] = {}
    for number, part in enumerate(form.parts):
        if number:
            image = open_image(data, max_pixels=max_pixels)
        box = scale(image, part.reading)
        if box not in decoded:
            decoded[box] = decode_scaled(image, box, srgb=part.reading.srgb, max_pixels=max_pixels)
        yield decoded[box]


def form_text(form: Form) -> str:
    """Return a form as JSON text, from which `form_of` returns it."""
    if isinstance(form, Preprocessing):
        return json.dumps({"preprocessing": form.to_json()})
    return json.dumps({"reading": asdict(form)} if form else {})


def form_of(text: str) -> Form:
    """Return the form that `form_text` wrote."""
    fields: dict[str, Any] = json.loads(text)
    if "preprocessing" in fields:
        return Preprocessing.from_json(fields["preprocessing"])
    return Reading(**fields["reading"]) if fields else None
