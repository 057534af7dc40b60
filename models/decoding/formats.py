"""The formats that are read, and how a file of each begins."""

from PIL import Image

from scda.models.errors import ImageError
from scda.models.foreign import describe

# Formats that decode inside Pillow and libheif alone; EPS, for one, would start Ghostscript.
FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "AVIF", "HEIF", "JPEG2000", "PPM")
# Brands in the first box of a HEIF file: of pictures coded as HEVC video, and of any pictures.
_HEVC_BRANDS = {b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"hevm", b"hevs"}
_ANY_BRANDS = {b"mif1", b"msf1"}
_MOST_BRANDS = 64


def image_format(data: bytes) -> str:
    """Return the one of `FORMATS` that a file begins like; its header is not read.

    Raises:
        ImageError: With code `empty` or `not_an_image`.
    """
    if not data:
        raise ImageError("empty", "the file is empty")
    if _is_heif(data):
        return "HEIF"
    Image.init()
    prefix = data[:16]
    for name in FORMATS:
        factory, accepts = Image.OPEN.get(name, (None, None))  # a build may lack a format
        # An accept function may return a text: it recognises the format but cannot open it.
        if factory and accepts and accepts(prefix) is True:
            return name
    formats = f"{', '.join(FORMATS[:-1])} or {FORMATS[-1]}"
    raise ImageError(
        "not_an_image", f"this looks like {describe(data)}; expected an image file: {formats}"
    )


def _is_heif(data: bytes) -> bool:
    """Return whether a file is HEIF with pictures coded as HEVC; AVIF has the same container."""
    if data[4:8] != b"ftyp":
        return False
    end = min(len(data), int.from_bytes(data[:4]), 4 * _MOST_BRANDS)
    brands = {data[place : place + 4] for place in range(16, end, 4)}
    major = data[8:12]
    return major in _HEVC_BRANDS or (major in _ANY_BRANDS and bool(brands & _HEVC_BRANDS))


def load_formats() -> None:
    """Load the decoders of all formats, for a process that is about to limit its memory."""
    Image.init()
    load_heif()


def load_heif() -> None:
    """Let Pillow open HEIF files, with one thread.

    Raises:
        ImageError: With code `cannot_decode`, where the package is missing.
    """
    if "HEIF" in Image.OPEN:
        return
    try:
        from pi_heif import register_heif_opener
    except ImportError as error:
        raise ImageError(
            "cannot_decode",
            f"HEIC needs the package pi-heif ({error}); install it, or convert the file to JPEG",
        ) from None
    register_heif_opener(thumbnails=False, depth_images=False, aux_images=False, decode_threads=1)
