"""A JPEG at a half, a quarter or an eighth of its size, decoded in a fraction of the time."""

from typing import TypeAlias

from PIL import Image
from PIL.Image import Transpose
from PIL.JpegImagePlugin import JpegImageFile

from scda.models.decoding.reading import Reading

Box: TypeAlias = tuple[float, float, float, float]  # left, top, right, bottom in pixels

# What a turn does to places: exchange x and y, then count x, or y, from the other end.
_PLACES = {
    Transpose.FLIP_LEFT_RIGHT: (False, True, False),
    Transpose.ROTATE_180: (False, True, True),
    Transpose.FLIP_TOP_BOTTOM: (False, False, True),
    Transpose.TRANSPOSE: (True, False, False),
    Transpose.ROTATE_270: (True, True, False),
    Transpose.TRANSVERSE: (True, True, True),
    Transpose.ROTATE_90: (True, False, True),
}


def scale(image: Image.Image, reading: Reading) -> Box:
    """Let a JPEG decode at the smallest scale that has pixels enough; return where its image is.

    libjpeg scales by 2, 4 or 8, with the mean over the pixels. Where these do not divide the size
    of the image, its last column and row hold a part of the image alone.

    Args:
        image: Image whose header was read.
        reading: How it is decoded.
    """
    if reading.enough_px and isinstance(image, JpegImageFile):
        drafted = image.draft(None, (reading.enough_px, reading.enough_px))
        if drafted:
            return drafted[1]
    return (0, 0, *image.size)


def turned(box: Box, size: tuple[int, int], turn: Transpose | None) -> Box:
    """Return where a box is after a turn.

    Args:
        box: Where it was before.
        size: Width and height of the image after the turn.
        turn: The turn, if any.
    """
    if turn is None:
        return box
    is_exchanged, flips_x, flips_y = _PLACES[turn]
    left, top, right, bottom = box
    if is_exchanged:
        left, top, right, bottom = top, left, bottom, right
    if flips_x:
        left, right = size[0] - right, size[0] - left
    if flips_y:
        top, bottom = size[1] - bottom, size[1] - top
    return left, top, right, bottom
