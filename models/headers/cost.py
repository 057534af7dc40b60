"""How much work and memory decoding takes, in pixels of a baseline JPEG."""

from PIL import Image

from scda.models.headers.jpeg import num_scans

CHEAP = 16_000_000  # about 0.1 seconds and 200 MB
# Measured per pixel, relative to a baseline JPEG. What is not here needs more memory than pixels,
# reads a header of any length, or holds the interpreter's lock.
_COSTS = {"JPEG": 1, "MPO": 1, "BMP": 1, "PPM": 1, "GIF": 2, "WEBP": 4, "PNG": 4}
_PLAIN_BYTE = 100  # a PPM in text form is read by Python
_PLAIN = (b"P1", b"P2", b"P3")


def is_cheap_format(name: str) -> bool:
    """Return whether small images of a format of Pillow are cheap to decode."""
    return name in _COSTS


def is_cheap(image: Image.Image, data: bytes) -> bool:
    """Return whether decoding an image takes little time and memory.

    Args:
        image: Image whose header was read.
        data: Content of the file.
    """
    each = _COSTS.get(image.format or "")
    if each is None:
        return False
    cost = each * image.width * image.height
    if each == 1 and cost <= CHEAP and data[:2] == b"\xff\xd8":
        cost *= max(1, num_scans(data, 1))
    if data[:2] in _PLAIN:
        cost += _PLAIN_BYTE * len(data)
    return cost <= CHEAP
