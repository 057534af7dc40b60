"""Colour profiles: pixels in sRGB, which the images of the backbones' training had.

Phones write photographs in Display P3, cameras in AdobeRGB. LittleCMS, which comes with Pillow,
converts them. A profile that cannot be used changes nothing, nor does one that is hardly another
than sRGB, as most are.
"""

import io
from functools import lru_cache

import numpy as np
from PIL import Image, ImageCms

MAX_PROFILE = 4 * 2**20  # bytes; those of printing presses have up to 3 MB
_HARDLY = 2  # of 255; profiles named sRGB differ by as much
_SPACES = {"RGB": "RGB", "RGBA": "RGB", "L": "GRAY", "CMYK": "CMYK"}  # of the pixels of a mode
_STEPS = (0, 32, 64, 96, 128, 160, 192, 224, 255)  # of each channel, to compare a profile with sRGB
_ERRORS = (ImageCms.PyCMSError, AttributeError, OSError, TypeError, ValueError)


def in_srgb(image: Image.Image, mode: str) -> Image.Image:
    """Return an image in a mode, with its colours converted from its profile to sRGB.

    Args:
        image: Decoded image with 8-bit pixels.
        mode: `RGB` or `RGBA`.
    """
    profile = image.info.get("icc_profile")
    if not isinstance(profile, bytes) or not 0 < len(profile) <= MAX_PROFILE:
        return image.convert(mode)
    is_direct = mode == "RGB" and image.mode in ("L", "CMYK")
    pixels = image if is_direct else image.convert(mode)
    transform = _transform(profile, pixels.mode, mode)
    if transform is None:
        return pixels.convert(mode)
    try:
        return transform.apply(pixels)
    except _ERRORS:
        return pixels.convert(mode)


@lru_cache(maxsize=8)
def _transform(profile: bytes, source: str, target: str) -> ImageCms.ImageCmsTransform | None:
    """Return the conversion from a profile to sRGB; None if it cannot be or changes nothing.

    Args:
        profile: Content of the profile.
        source: Mode of the pixels.
        target: Mode of the result.
    """
    try:
        found = ImageCms.ImageCmsProfile(io.BytesIO(profile))
        if found.profile.xcolor_space.strip() != _SPACES[source]:
            return None
        srgb = ImageCms.createProfile("sRGB")
        transform = ImageCms.buildTransform(found, srgb, source, target)
        return transform if _changes(transform, source) else None
    except _ERRORS:
        return None


def _changes(transform: ImageCms.ImageCmsTransform, source: str) -> bool:
    """Return whether a conversion changes colours by more than profiles of sRGB do."""
    if source == "CMYK":
        return True
    channels = 1 if source == "L" else 3
    grid = np.stack(np.meshgrid(*[np.array(_STEPS, np.uint8)] * channels), axis=-1)
    before = Image.fromarray(grid.reshape(1, -1, channels).squeeze(-1 if channels == 1 else ()))
    after = np.asarray(transform.apply(before.convert(source)).convert("RGB"), int)
    return bool(np.abs(after - np.asarray(before.convert("RGB"), int)).max() > _HARDLY)
