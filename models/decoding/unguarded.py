"""Bytes to an upright 8-bit RGB image, in this process and without limits of memory and time.

Only `scda.models.decoding` may call this: the one reader of all others is `scda.models.images`.
EXIF rotation is applied, transparency is composed on white, 16-bit greys are scaled to 8 bits, and
an animation is read as its first frame. Colours are converted from their profile to sRGB.
"""

import struct
import warnings
import zlib
from collections.abc import Callable
from functools import partial

import numpy as np
from PIL import ExifTags, Image
from PIL.JpegImagePlugin import JpegImageFile
from PIL.TiffImagePlugin import TILELENGTH, TILEWIDTH, TiffImageFile

from scda.models.decoding.bounded import BoundedReader
from scda.models.decoding.colours import in_srgb
from scda.models.decoding.formats import image_format, load_heif
from scda.models.decoding.reading import IN_FULL, Reading
from scda.models.decoding.scaling import Box, scale, turned
from scda.models.errors import ImageError
from scda.models.headers.jpeg import check_jpeg
from scda.models.headers.jpeg2000 import check_jpeg2000
from scda.models.limits import MAX_PIXELS

# Pillow warns where this module raises; silencing it per call would not be safe in threads.
warnings.filterwarnings("ignore", module=r"PIL\.")

MAX_PLAIN_BYTES = 16 * 2**20  # size of a PPM in text form, of which Pillow reads 2.5 MB per second

# What Pillow's decoders were seen to raise, or may raise, on damaged or hostile bytes.
_DECODE_ERRORS = (
    ArithmeticError,
    AttributeError,
    EOFError,
    LookupError,
    MemoryError,
    OSError,
    RuntimeError,
    SyntaxError,
    TypeError,
    ValueError,
    Warning,  # only where the process makes errors of them
    struct.error,
    zlib.error,
)
_BOMBS = (Image.DecompressionBombError, Image.DecompressionBombWarning)
_PLAIN = (b"P1", b"P2", b"P3")
_END = b"\xff\xd9"
_STRIP = 2**20  # pixels that are converted at once; a whole image would take three times its size
_TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}  # EXIF orientation → what undoes it


def read_image(
    data: bytes, *, reading: Reading = IN_FULL, max_pixels: int = MAX_PIXELS
) -> Image.Image:
    """Return the image in `data`, upright, 8-bit RGB.

    Args:
        data: Content of an image file; the content decides its format.
        reading: How it is decoded.
        max_pixels: Largest number of pixels, checked in the header before decoding.

    Raises:
        ImageError: With code `empty`, `not_an_image`, `too_many_pixels` or `cannot_decode`.
    """
    return decode(open_image(data, max_pixels=max_pixels), reading, max_pixels=max_pixels)


def decode(
    image: Image.Image, reading: Reading = IN_FULL, *, max_pixels: int = MAX_PIXELS
) -> Image.Image:
    """Decode an image from `open_image` to upright 8-bit RGB.

    Raises:
        ImageError: With code `too_many_pixels` or `cannot_decode`.
    """
    return decode_scaled(image, scale(image, reading), srgb=reading.srgb, max_pixels=max_pixels)[0]


def decode_scaled(
    image: Image.Image, box: Box, *, srgb: bool = True, max_pixels: int = MAX_PIXELS
) -> tuple[Image.Image, Box]:
    """Decode an image to upright 8-bit RGB, and say where in it its content is.

    Args:
        image: Image from `open_image`.
        box: Where its content will be, as `scale` says.
        srgb: Whether its colours are converted from its profile to sRGB.
        max_pixels: The bound that it was opened with.

    Raises:
        ImageError: With code `too_many_pixels` or `cannot_decode`.
    """
    try:
        image.load()
        if (pixels := image.width * image.height) > max_pixels:  # HEIF, where the header is wrong
            raise ImageError("too_many_pixels", f"{pixels:,} pixels; the limit is {max_pixels:,}")
        turn = _turn(image)
        upright = image if turn is None else image.transpose(turn)
        return _to_rgb(upright, srgb=srgb), turned(box, upright.size, turn)
    except _BOMBS:
        raise ImageError("too_many_pixels", f"more than {max_pixels:,} pixels") from None
    except MemoryError as error:
        raise ImageError("cannot_decode", "decoding needs more memory than there is") from error
    except _DECODE_ERRORS as error:
        raise ImageError("cannot_decode", f"damaged {image.format}: {_one_line(error)}") from None


def open_image(data: bytes, *, max_pixels: int = MAX_PIXELS) -> Image.Image:
    """Return the image with only its header read.

    Raises:
        ImageError: With code `empty`, `not_an_image`, `too_many_pixels` or `cannot_decode`.
    """
    name = image_format(data)
    if name == "JPEG2000":  # its header lies in two places, of which Pillow reads one
        check_jpeg2000(data, max_pixels=max_pixels)
    if name == "HEIF":
        load_heif()
    factory, _ = Image.OPEN[name]
    try:
        # Not Image.open: its error hides the cause, and its own pixel cap is not the caller's.
        image = factory(BoundedReader(data), "")
        pixels = _pixels(image)
    except _BOMBS:
        raise ImageError("too_many_pixels", f"more than {max_pixels:,} pixels") from None
    except _DECODE_ERRORS as error:
        raise ImageError("cannot_decode", f"damaged header: {_one_line(error)}") from None
    if pixels > max_pixels:
        raise ImageError("too_many_pixels", f"{pixels:,} pixels; the limit is {max_pixels:,}")
    if isinstance(image, JpegImageFile):
        check_jpeg(data, pixels, max_pixels=max_pixels)
    _check_markers(image, data)
    return image


def _pixels(image: Image.Image) -> int:
    """Return the number of pixels to decode; a single TIFF tile may exceed its image."""
    width, height = image.size
    if isinstance(image, TiffImageFile):
        tags = image.tag_v2
        return max(width * height, int(tags.get(TILEWIDTH, 0) * tags.get(TILELENGTH, 0)))
    return width * height


def _check_markers(image: Image.Image, data: bytes) -> None:
    """Refuse images that some decoders accept: endless work, or a missing end."""
    if data[:2] in _PLAIN and len(data) > MAX_PLAIN_BYTES:
        raise ImageError(
            "cannot_decode",
            f"text PPM larger than {MAX_PLAIN_BYTES:,} bytes; save it as binary PPM (P6)",
        )
    # A file cut between two tiles would decode, with black in place of the rest.
    if image.format == "JPEG2000" and _END not in data:
        raise ImageError("cannot_decode", "damaged JPEG2000: the end of the file is missing")


def _turn(image: Image.Image) -> Image.Transpose | None:
    """Return the turn that makes an image upright by its EXIF data; unreadable data is ignored.

    ImageOps.exif_transpose would also rewrite the EXIF data, and fail on irrelevant tags.
    """
    try:
        return _TURNS.get(image.getexif().get(ExifTags.Base.Orientation, 1))
    except _DECODE_ERRORS:
        return None


def _to_rgb(image: Image.Image, *, srgb: bool) -> Image.Image:
    if image.mode.startswith("I;16") or (image.mode == "I" and image.format in ("PNG", "PPM")):
        return _in_strips(image, _from_16_bit)
    if image.mode in ("I", "F"):
        raise ImageError(
            "cannot_decode", f"{image.format} with 32-bit pixels; expected 8 or 16 bits"
        )
    if image.has_transparency_data:
        return _in_strips(image, partial(_on_white, srgb=srgb))
    return _converted(image, "RGB", srgb=srgb)


def _converted(image: Image.Image, mode: str, *, srgb: bool) -> Image.Image:
    return in_srgb(image, mode) if srgb else image.convert(mode)


def _in_strips(image: Image.Image, convert: Callable[[Image.Image], Image.Image]) -> Image.Image:
    """Return the image as `convert` returns each strip of its rows."""
    width, height = image.size
    rows = max(1, _STRIP // width)
    if rows >= height:
        return convert(image)
    whole = Image.new("RGB", image.size)
    for top in range(0, height, rows):
        strip = image.crop((0, top, width, min(height, top + rows)))
        whole.paste(convert(strip), (0, top))
    return whole


def _on_white(image: Image.Image, *, srgb: bool) -> Image.Image:
    white = Image.new("RGBA", image.size, "white")
    return Image.alpha_composite(white, _converted(image, "RGBA", srgb=srgb)).convert("RGB")


def _from_16_bit(image: Image.Image) -> Image.Image:
    # Pillow's own conversion clips at 255 and turns most 16-bit images white.
    grey = np.asarray(image).astype(np.uint32)
    grey[grey == image.info.get("transparency", -1)] = 65535
    return Image.fromarray(((grey + 128) // 257).astype(np.uint8)).convert("RGB")


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__
