"""How much work and memory decoding takes, in pixels of a baseline JPEG."""

from PIL import Image

from scda.models.headers.jpeg import num_scans

CHEAP = 16_000_000  # about 0.1 seconds and 200 MB
# In a larger file the segments before the pixels alone may take seconds to read. A photograph of
# 16 million pixels is half as large.
CHEAP_BYTES = 8 * 2**20
CHEAP_PROFILE = 2**16  # bytes; those of cameras and phones have less than 4 KB
# Measured per pixel, relative to a baseline JPEG. What is not here needs more memory than pixels,
# reads a header of any length, or holds the interpreter's lock.
_COSTS = {"JPEG": 1, "MPO": 1, "BMP": 1, "PPM": 1, "GIF": 2, "WEBP": 4, "PNG": 4}
_PLAIN_BYTE = 100  # a PPM in text form is read by Python
_PLAIN = (b"P1", b"P2", b"P3")


def may_be_cheap(name: str, data: bytes) -> bool:
    """Return whether the header of a file, and the pixels of a small one, are cheap to read.

    Args:
        name: Pillow's name of the format.
        data: Content of the file.
    """
    return name in _COSTS and len(data) <= CHEAP_BYTES


def is_cheap(image: Image.Image, data: bytes) -> bool:
    """Return whether decoding an image takes little time and memory.

    Args:
        image: Image whose header was read.
        data: Content of the file.
    """
    each = _COSTS.get(image.format or "")
    if each is None or len(image.info.get("icc_profile") or b"") > CHEAP_PROFILE:
        return False
    cost = each * image.width * image.height
    if each == 1 and cost <= CHEAP and data[:2] == b"\xff\xd8":
        cost *= max(1, num_scans(data, 1))
    if data[:2] in _PLAIN:
        cost += _PLAIN_BYTE * len(data)
    return cost <= CHEAP
