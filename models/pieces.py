"""A file in memory that is read in a bounded number of pieces.

Pillow's readers take a few microseconds for each piece of a file, however small, and nothing else
runs meanwhile. A file of a few megabytes made of nothing but tiny pieces would take many seconds.
"""

import io
from typing import TYPE_CHECKING

from scda.models.errors import ImageError

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

MAX_PIECES = 50_000  # a 64 MiB PNG in blocks of 8 KiB, libpng's, takes 25,000
MAX_EXIF = 100  # a JPEG has one such segment, rarely a few
_EXIF = b"Exif\0\0"


class PieceFile(io.BytesIO):
    """Refuses to be read after `MAX_PIECES` pieces."""

    def __init__(self, data: "ReadableBuffer") -> None:
        """Begin at the first byte."""
        super().__init__(data)
        self._left = MAX_PIECES

    def read(self, size: int | None = -1, /) -> bytes:
        """Return the next bytes.

        Raises:
            ImageError: With code `cannot_decode`, once the pieces are used up.
        """
        piece = super().read(size)
        # For each further segment Pillow copies all of the EXIF data that it has so far.
        self._left -= MAX_PIECES // MAX_EXIF if piece.startswith(_EXIF) else 1
        if self._left < 0:
            raise ImageError("cannot_decode", "made of too many pieces; save it anew")
        return piece
