"""The formats that are read, and how a file of each begins."""

from PIL import Image

from scda.models.errors import ImageError
from scda.models.foreign import describe

# Formats that decode inside Pillow alone; EPS, for one, would start Ghostscript.
FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "AVIF", "JPEG2000", "PPM")
_HEIC_BRANDS = (b"heic", b"heix", b"mif1", b"msf1", b"hevc")


def image_format(data: bytes) -> str:
    """Return the one of `FORMATS` that a file begins like; its header is not read.

    Raises:
        ImageError: With code `empty` or `not_an_image`, or `cannot_decode` for HEIC.
    """
    if not data:
        raise ImageError("empty", "the file is empty")
    Image.init()
    prefix = data[:16]
    for name in FORMATS:
        factory, accepts = Image.OPEN.get(name, (None, None))  # a build may lack a format
        # An accept function may return a text: it recognises the format but cannot open it.
        if factory and accepts and accepts(prefix) is True:
            return name
    if prefix[4:8] == b"ftyp" and prefix[8:12] in _HEIC_BRANDS:
        raise ImageError("cannot_decode", "HEIC is not supported; convert it to JPEG or PNG")
    formats = f"{', '.join(FORMATS[:-1])} or {FORMATS[-1]}"
    raise ImageError(
        "not_an_image", f"this looks like {describe(data)}; expected an image file: {formats}"
    )
