"""Bytes to the pixels of an image: the one reader for training, reports, review and the API.

An image that takes little time and memory is decoded in this process. Any other is decoded in a
process whose memory and time are limited, so that no file can take more than that. Labelling and
the server, which decode many images at a time, have such processes of their own.
"""

import os
from dataclasses import replace
from pathlib import Path

from PIL import Image

from scda.models.cpus import local_world_size, usable_cpus
from scda.models.decoding.cheap import prepare_cheap
from scda.models.decoding.content import read_bytes
from scda.models.decoding.decoders import CostlyImages
from scda.models.decoding.forms import Form
from scda.models.decoding.reading import IN_FULL, Reading
from scda.models.decoding.unguarded import decode
from scda.models.errors import ImageError
from scda.models.limits import LIMITS, ImageLimits
from scda.models.preprocess import Pixels

_costly_images: dict[tuple[int, ImageLimits], CostlyImages] = {}


def read_pixels(data: bytes, form: Form, limits: ImageLimits = LIMITS) -> Pixels:
    """Return what a form makes of an image file, (H, W, 3) uint8; threads may share this.

    Args:
        data: Content of an image file; the content decides its format.
        form: What is made of it.
        limits: The largest image that is read.

    Raises:
        ImageError: With code `empty`, `not_an_image`, `too_many_pixels` or `cannot_decode`.
        DataError: If no process can be started to decode it.
    """
    (prepared,) = prepare_cheap(form, [data], limits)
    if prepared is None:
        prepared = _costly(limits).prepare(form, data)
    if isinstance(prepared, ImageError):
        raise prepared
    return prepared


def check_image(data: bytes, limits: ImageLimits = LIMITS) -> None:
    """Check the header of an image file.

    Raises:
        ImageError: As `read_pixels`, of what the header tells.
        DataError: If no process can be started to read it.
    """
    read_pixels(data, None, limits)


def read_image(
    data: bytes, limits: ImageLimits = LIMITS, *, reading: Reading = IN_FULL
) -> Image.Image:
    """Return the image in `data`, upright, 8-bit RGB.

    Args:
        data: Content of an image file; the content decides its format.
        limits: The largest image that is read.
        reading: How it is decoded.

    Raises:
        ImageError: With code `empty`, `not_an_image`, `too_many_pixels` or `cannot_decode`.
        DataError: If no process can be started to decode it.
    """
    return Image.fromarray(read_pixels(data, reading, limits))


def read_file(
    path: Path, limits: ImageLimits = LIMITS, *, reading: Reading = IN_FULL
) -> Image.Image:
    """Return the image in a file, upright, 8-bit RGB.

    Raises:
        ImageError: With code `unreadable`, `too_many_bytes`, or a code of `read_image`.
        DataError: If no process can be started to decode it.
    """
    return read_image(read_bytes(path, max_bytes=limits.max_bytes), limits, reading=reading)


def to_rgb(image: Image.Image, reading: Reading) -> Image.Image:
    """Return an image in memory, upright, 8-bit RGB, with all of its pixels.

    Raises:
        ImageError: With code `cannot_decode`.
    """
    return decode(image, replace(reading, enough_px=None))


def _costly(limits: ImageLimits) -> CostlyImages:
    """Return the decoding processes of this process; a fork must not share those of its parent."""
    key = os.getpid(), limits
    if key not in _costly_images:
        most = max(1, usable_cpus() // local_world_size())
        # Of two threads that come here together, the first one's stays; neither has started any.
        _costly_images.setdefault(key, CostlyImages(limits, most=most))
    return _costly_images[key]
