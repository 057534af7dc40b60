"""The pieces of a JPEG 2000: a file of 800 bytes can ask for millions of them.

OpenJPEG holds some 300 bytes for each precinct and each code block of a tile, whether or not the
file has data for it, and 9 KB for each tile.

Source: ISO/IEC 15444-1, Annex A (markers) and Annex B (tiles, resolutions, precincts).
"""

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from scda.models.errors import ImageError

MAX_PIECES = 1_000_000  # precincts and code blocks; 16 x 16 blocks of an RGB of 50 MP are 800,000
MAX_PACKETS = 5_000_000  # layers x precincts
MAX_TILES = 16_384
MAX_TILE_PARTS = 65_536
MAX_SEGMENTS = 4 * MAX_TILE_PARTS  # of one codestream; each takes this module half a microsecond
MAX_STYLES = 64  # that differ, of one codestream; programs write one for all tiles, or two
_MAX_STYLE = 5 + 256  # bytes that describe one; a segment may be longer
MAX_CODESTREAMS = 8  # a file has one, and perhaps previews of it
MAX_COMPONENTS = 3  # of an image of the largest size; each takes 5 bytes per pixel to decode

_START = re.compile(rb"\xff\x4f\xff\x51")
_COD, _COC, _SOT, _SOD = 0xFF52, 0xFF53, 0xFF90, 0xFF93
_LARGEST_PRECINCT = 15  # log2


@dataclass(frozen=True)
class Frame:
    """The grid of an image: its size, that of its tiles, and the number of components."""

    width: int
    height: int
    tile_width: int
    tile_height: int
    components: int

    @property
    def tiles(self) -> int:
        """Number of tiles."""
        return _ceil(self.width, self.tile_width) * _ceil(self.height, self.tile_height)


@dataclass(frozen=True)
class CodingStyle:
    """How a tile is divided; sizes are exponents of 2."""

    layers: int
    block: tuple[int, int]
    precincts: tuple[tuple[int, int], ...]  # of each resolution, the smallest resolution first

    def precinct_count(self, frame: Frame) -> int:
        """Return the number of precincts of the image."""
        return sum(precincts for _, precincts, _ in self._resolutions(frame))

    def pieces(self, frame: Frame) -> int:
        """Return the number of precincts, in each band, and of code blocks of the image."""
        return sum(
            bands * (precincts + max(precincts, blocks))
            for bands, precincts, blocks in self._resolutions(frame)
        )

    def _resolutions(self, frame: Frame) -> Iterator[tuple[int, int, int]]:
        """Yield the bands, the precincts, and the code blocks in each band, of each resolution."""
        each = frame.tiles * frame.components
        width, height = min(frame.width, frame.tile_width), min(frame.height, frame.tile_height)
        for number, (x, y) in enumerate(self.precincts):
            scale = 2 ** (len(self.precincts) - 1 - number)
            w, h = _ceil(width, scale), _ceil(height, scale)
            half = int(number > 0)  # the three bands of a larger resolution have half its size
            block_x = 2 ** max(0, min(self.block[0], x - half))
            block_y = 2 ** max(0, min(self.block[1], y - half))
            blocks = _ceil(_ceil(w, 1 + half), block_x) * _ceil(_ceil(h, 1 + half), block_y)
            yield 3 if half else 1, each * _ceil(w, 2**x) * _ceil(h, 2**y), each * blocks


def check_jpeg2000(data: bytes, *, max_pixels: int) -> None:
    """Check the size of every codestream in a file, and the work of decoding it.

    Raises:
        ImageError: With code `too_many_pixels` or `cannot_decode`.
    """
    found = islice(_START.finditer(data), MAX_CODESTREAMS + 1)
    starts = [match.end() - 2 for match in found]
    if len(starts) > MAX_CODESTREAMS:
        raise ImageError(
            "cannot_decode", f"JPEG2000 with more than {MAX_CODESTREAMS} images in one file"
        )
    for number, start in enumerate(starts):
        try:
            _check(data, start, max_pixels)
        except (IndexError, ZeroDivisionError, struct.error):
            if number == 0:
                raise ImageError("cannot_decode", "damaged JPEG2000: incomplete header") from None
    if not starts:
        raise ImageError("cannot_decode", "damaged JPEG2000: no image data found")


def _check(data: bytes, start: int, max_pixels: int) -> None:
    frame = _frame(data, start)
    pixels = frame.width * frame.height
    if pixels > max_pixels:
        raise ImageError("too_many_pixels", f"{pixels:,} pixels; the limit is {max_pixels:,}")
    if pixels * frame.components > MAX_COMPONENTS * max_pixels:
        raise ImageError(
            "too_many_pixels",
            f"JPEG2000 of {pixels:,} pixels with {frame.components} components; the limit is "
            f"{MAX_COMPONENTS * max_pixels // frame.components:,} pixels",
        )
    if frame.tiles > MAX_TILES:
        raise _too_many(frame, f"{frame.tiles:,} tiles; the limit is {MAX_TILES:,}")
    for style in _styles(data, start, frame):
        pieces = style.pieces(frame)
        packets = style.layers * style.precinct_count(frame)
        if pieces > MAX_PIECES:
            raise _too_many(
                frame, f"{pieces:,} precincts and code blocks; the limit is {MAX_PIECES:,}"
            )
        if packets > MAX_PACKETS:
            raise _too_many(frame, f"{packets:,} packets; the limit is {MAX_PACKETS:,}")


def _frame(data: bytes, start: int) -> Frame:
    """Read SIZ, whose marker is at `start`."""
    x1, y1, x0, y0, tile_w, tile_h, _, _, components = struct.unpack_from(">8IH", data, start + 6)
    return Frame(max(0, x1 - x0), max(0, y1 - y0), tile_w, tile_h, components)


def _styles(data: bytes, start: int, frame: Frame) -> Iterator[CodingStyle]:
    """Yield the coding styles of the main header and of the tiles, whatever they are for.

    Raises:
        ImageError: With code `cannot_decode`, if too many of them differ.
    """
    layers, seen = 1, set[tuple[int, int, bytes]]()
    for marker, position, end in _segments(data, start):
        body = position + 4  # behind the marker and the length of the segment
        if marker == _COD:
            (layers,) = struct.unpack_from(">H", data, body + 2)
            has_precincts, style = data[body] & 1, data[body + 5 : min(end, body + 5 + _MAX_STYLE)]
        elif marker == _COC:
            width = 1 if frame.components < 257 else 2  # of the number of the component
            has_precincts, begin = data[body + width] & 1, body + width + 1
            style = data[begin : min(end, begin + _MAX_STYLE)]
        else:
            continue
        if (layers, has_precincts, style) not in seen:
            seen.add((layers, has_precincts, style))
            yield _style(style, layers, has_precincts=bool(has_precincts))
        if len(seen) > MAX_STYLES:
            raise _too_many(frame, f"more than {MAX_STYLES} ways to divide its tiles")


def _style(data: bytes, layers: int, *, has_precincts: bool) -> CodingStyle:
    levels, block_x, block_y = data[0], data[1], data[2]
    sizes = [(_LARGEST_PRECINCT, _LARGEST_PRECINCT)] * (levels + 1)
    if has_precincts:
        packed = (data[5 + number] for number in range(levels + 1))
        sizes = [(size & 15, size >> 4) for size in packed]
    # Only the lower four bits count.
    return CodingStyle(layers, ((block_x & 15) + 2, (block_y & 15) + 2), tuple(sizes))


def _segments(data: bytes, position: int) -> Iterator[tuple[int, int, int]]:
    """Yield the marker, begin and end of each segment before and in the tile parts.

    Raises:
        ImageError: With code `cannot_decode`, if there are too many segments or tile parts.
    """
    parts, part, length = 0, 0, 0
    for _ in range(MAX_SEGMENTS):
        if position + 4 > len(data):
            return
        marker, size = struct.unpack_from(">HH", data, position)
        if marker == _SOT:
            parts, part = parts + 1, position
            if parts > MAX_TILE_PARTS:
                raise ImageError(
                    "cannot_decode", f"JPEG2000 with more than {MAX_TILE_PARTS:,} tile parts"
                )
            (length,) = struct.unpack_from(">I", data, position + 6)
        if marker == _SOD:
            if length < 14:  # 0: the last part, up to the end
                return
            position = part + length
        elif marker < 0xFF00:
            return
        else:
            end = position + 2 + max(2, size)
            yield marker, position, end
            position = end
    raise ImageError("cannot_decode", f"JPEG2000 with more than {MAX_SEGMENTS:,} segments")


def _too_many(frame: Frame, found: str) -> ImageError:
    return ImageError(
        "cannot_decode", f"JPEG2000 of {frame.width} x {frame.height} pixels with {found}"
    )


def _ceil(size: int, part: int) -> int:
    return -(-size // part)
