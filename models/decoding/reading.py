"""How an image is decoded, where its pixels depend on it."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Reading:
    """How an image is decoded; the default keeps all of its pixels.

    A JPEG decodes at a half, a quarter or an eighth of its size in a fraction of the time.
    """

    enough_px: int | None = None  # shorter side that a JPEG needs at least; None decodes in full
    srgb: bool = True  # whether colours are converted from the image's profile to sRGB
    fit_px: int | None = None  # longer side at most, to which a larger image is reduced


IN_FULL = Reading()
# How this version decodes, and earlier ones did: in full. Part of the id of the preprocessing.
DECODER_IN_FULL = "exif, alpha on white, 16 to 8 bit, first frame"
DECODER = f"{DECODER_IN_FULL}, sRGB, JPEG scaled to twice the resized"
AS_EARLIER = Reading(srgb=False)


def thumbnail(side_px: int) -> Reading:
    """Return how an image is decoded of which at most `side_px` pixels of a side are shown."""
    return Reading(enough_px=2 * side_px, fit_px=side_px)
