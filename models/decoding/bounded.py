"""A file in memory that may not be read in ever so many pieces."""

import io
from typing import TYPE_CHECKING

from scda.models.errors import ImageError

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

MAX_READS = 50_000  # a 64 MiB PNG in blocks of 8 KiB, libpng's, takes 25,000
MAX_EXIF = 100  # a JPEG has one such segment, rarely a few
_EXIF = b"Exif\0\0"


class BoundedReader(io.BytesIO):
    """A file in memory that refuses to be read after `MAX_READS` reads.

    Pillow takes a few microseconds for each segment of a file, however small, and nothing else
    runs meanwhile. A few megabytes of tiny segments alone would take many seconds.
    """

    def __init__(self, data: "ReadableBuffer") -> None:
        """Begin at the first byte."""
        super().__init__(data)
        self._left = MAX_READS

    def read(self, size: int | None = -1, /) -> bytes:
        """Return the next bytes.

        Raises:
            ImageError: With code `cannot_decode`, after `MAX_READS` reads.
        """
        data = super().read(size)
        # For each further segment Pillow copies all of the EXIF data that it has so far.
        self._left -= MAX_READS // MAX_EXIF if data.startswith(_EXIF) else 1
        if self._left < 0:
            raise ImageError(
                "cannot_decode",
                "the file consists of too many small segments; save it again with an image program",
            )
        return data
