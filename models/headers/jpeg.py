"""The scans of a JPEG; each of them may take as long as the whole image."""

import re

from scda.models.errors import ImageError

MAX_SCANS = 100  # libtiff's limit, too
# Scans x pixels, in images of the largest size. libjpeg writes 10 scans, for CMYK 18.
MAX_LARGE_SCANS = 20
MAX_SEGMENTS = 50_000  # each takes this module half a microsecond

_SCAN, _END = b"\xff\xda", b"\xff\xd9"
_MARKER = re.compile(rb"\xff[\x01-\xcf\xd8-\xfe]")  # not a stuffed byte, not a restart


def check_jpeg(data: bytes, pixels: int, *, max_pixels: int) -> None:
    """Check the work of decoding a JPEG.

    Args:
        data: Content of the file.
        pixels: Number of pixels of the image.
        max_pixels: Largest number of pixels of an image.

    Raises:
        ImageError: With code `cannot_decode`, if it has too many scans for its size.
    """
    most = min(MAX_SCANS, MAX_LARGE_SCANS * max_pixels // max(1, pixels))
    if num_scans(data, most) > most:
        raise ImageError(
            "cannot_decode",
            f"JPEG of {pixels:,} pixels with more than {most} scans; save it as a baseline JPEG",
        )


def num_scans(data: bytes, most: int = 0) -> int:
    """Return the number of scans of a JPEG; data appended behind its end is ignored.

    Args:
        data: Content of the file.
        most: Up to this number of scans the result may be too high, and takes hardly any time.

    Raises:
        ImageError: With code `cannot_decode`, if the scans are to be found among too many segments.
    """
    # Counting the marker is quick and rarely too high; only then the scans are parsed.
    if (count := data.count(_SCAN)) <= most:
        return count
    scans, position = 0, 2
    for _ in range(MAX_SEGMENTS):
        marker = _MARKER.search(data, position)
        if not marker or marker[0] == _END:
            return scans
        scans += marker[0] == _SCAN
        length = data[marker.end() : marker.end() + 2]
        position = marker.end() + int.from_bytes(length)
    raise ImageError("cannot_decode", f"JPEG with more than {MAX_SEGMENTS:,} segments")
