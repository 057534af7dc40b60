"""TIFF files whose tags lie, whose directories form circles, and whose strips are all the same.

Source: TIFF 6.0.
"""

import struct
import zlib
from typing import Any

from PIL import Image

from tests.nasty import encode, four

_WIDTH, _HEIGHT, _BITS, _COMPRESSION, _PHOTOMETRIC = 256, 257, 258, 259, 262
_OFFSETS, _SAMPLES, _ROWS, _COUNTS, _PLANAR = 273, 277, 278, 279, 284
_TILE_WIDTH, _TILE_LENGTH, _TILE_OFFSETS, _TILE_COUNTS = 322, 323, 324, 325
_NONE, _CCITT4, _LZW, _OLD_JPEG, _JPEG, _DEFLATE, _PACKBITS = 1, 4, 5, 6, 7, 8, 32773
_LZMA, _ZSTD, _WEBP = 34925, 50000, 50001
SIDE = 7000  # pixels


def tiff_files() -> dict[str, bytes]:
    """Return every file by its name."""
    zeros = zlib.compress(bytes(SIDE * SIDE), 9)
    row = zlib.compress(bytes(SIDE), 9)
    small = encode(four(), "TIFF")
    black = Image.new("L", (SIDE, SIDE))
    files = {
        "one-strip-of-49mp": strips(zeros, compression=_DEFLATE),
        "each-row-the-same-strip": strips(row, compression=_DEFLATE, rows=1, count=SIDE),
        "strips-without-data": strips(b"", compression=_LZW, rows=1, count=SIDE),
        "tiles-of-16-all-the-same": _tiles(16, zlib.compress(bytes(256))),
        "one-tile-of-49mp": _tiles(7008, zlib.compress(bytes(7008 * 7008), 9)),
        "tiles-of-1": _tiles(1, b"\0"),
        "tiles-of-nothing": _tiles(0, b"\0"),
        "lzw-of-49mp": encode(black, "TIFF", compression="tiff_lzw"),
        "packbits-of-49mp": encode(black, "TIFF", compression="packbits"),
        "fax-of-49mp": encode(black.convert("1"), "TIFF", compression="group4"),
        "fax-of-noise": strips(b"\xa5\x5a\x13" * 30_000, compression=_CCITT4, bits=1),
        "jpeg-without-tables": strips(b"\xff\xd8\xff\xd9", compression=_JPEG),
        "old-jpeg": strips(b"\xff\xd8\xff\xd9", compression=_OLD_JPEG),
        "jpeg-in-each-strip": strips(
            encode(four(), "JPEG"), compression=_JPEG, rows=8, count=SIDE // 8
        ),
        "lzma-of-noise": strips(b"\xfd7zXZ\0\0\4" + bytes(90), compression=_LZMA),
        "zstd-of-noise": strips(
            b"\x28\xb5\x2f\xfd\xa4\xff\xff\xff\xff" + bytes(90), compression=_ZSTD
        ),
        "webp-of-noise": strips(b"RIFF\xff\xff\xff\xffWEBPVP8L", compression=_WEBP),
        "65535-samples": strips(zeros, compression=_DEFLATE, samples=65_535),
        "samples-in-planes": strips(row, compression=_DEFLATE, samples=1000, planar=2),
        "65535-bits": strips(zeros, compression=_DEFLATE, bits=65_535),
        "rows-of-4-billion": strips(zeros, compression=_DEFLATE, rows=2**32 - 1),
        "no-rows": strips(zeros, compression=_DEFLATE, rows=0),
        "counts-of-4-gb": strips(bytes(100), compression=_NONE, byte_count=2**32 - 1),
        "tag-of-4-billion-values": directory({**_size(), _OFFSETS: (4, 2**32 - 1, 8)}),
        "rationals-without-end": directory({**_size(), 282: (5, 2**28, 8), 283: (5, 2**28, 8)}),
        "directory-of-65535-tags": _header(8) + struct.pack("<H", 65_535) + bytes(786_000),
        "directories-in-a-circle": directory(_size(), following=8),
        "directories-within-each-other": directory({**_size(), 330: (4, 1, 8), 34665: (4, 1, 8)}),
        "100000-pages": _pages(50_000, small),
        "big-tiff-that-points-outside": b"II+\0\x08\0\0\0" + struct.pack("<Q", 2**63),
        "big-tiff-of-2-to-the-63-tags": b"II+\0\x08\0\0\0" + struct.pack("<QQ", 16, 2**63),
    }
    return {f"{name}.tif": data for name, data in files.items()}


def directory(tags: dict[int, Any], data: bytes = b"", *, following: int = 0) -> bytes:
    """Return a TIFF of one directory, with `data` behind it.

    The value of a tag is a number, or its type, count, and value or offset.
    """
    rows = [(tag, *(v if isinstance(v, tuple) else (4, 1, v))) for tag, v in sorted(tags.items())]
    entries = b"".join(struct.pack("<HHII", *row) for row in rows)
    return _header(8) + struct.pack("<H", len(tags)) + entries + struct.pack("<I", following) + data


def strips(
    data: bytes,
    *,
    compression: int,
    rows: int = SIDE,
    count: int = 1,
    bits: int = 8,
    samples: int = 1,
    planar: int = 1,
    byte_count: int | None = None,
) -> bytes:
    """Return a picture of `SIDE` x `SIDE` in `count` strips, each of which is the same data."""
    tags = _size() | {_BITS: bits, _COMPRESSION: compression, _PHOTOMETRIC: 1}
    tags |= {_SAMPLES: samples, _ROWS: rows, _PLANAR: planar}
    length = len(data) if byte_count is None else byte_count
    return _with_pieces(tags, _OFFSETS, _COUNTS, data, length, count)


def _tiles(side: int, data: bytes) -> bytes:
    tags = _size() | {_BITS: 8, _COMPRESSION: _DEFLATE, _PHOTOMETRIC: 1, _SAMPLES: 1}
    tags |= {_TILE_WIDTH: side, _TILE_LENGTH: side}
    count = min(100_000, (-(-SIDE // side)) ** 2) if side else 1
    return _with_pieces(tags, _TILE_OFFSETS, _TILE_COUNTS, data, len(data), count)


def _with_pieces(
    tags: dict[int, Any], offsets: int, counts: int, data: bytes, length: int, count: int
) -> bytes:
    """Return a picture whose `count` pieces all lie at the same place."""
    first = 8 + 2 + 12 * (len(tags) + 2) + 4  # behind the directory
    if count == 1:
        return directory({**tags, offsets: first, counts: length}, data)
    start = first + 8 * count
    tags = tags | {offsets: (4, count, first), counts: (4, count, first + 4 * count)}
    lists = struct.pack("<I", start) * count + struct.pack("<I", length) * count
    return directory(tags, lists + data)


def _pages(count: int, small: bytes) -> bytes:
    """Return a picture that is followed by directories without tags."""
    position = len(small)
    pages = b"".join(struct.pack("<HI", 0, position + 6 * (i + 1)) for i in range(count))
    (first,) = struct.unpack_from("<I", small, 4)
    (tags,) = struct.unpack_from("<H", small, first)
    link = first + 2 + 12 * tags
    return small[:link] + struct.pack("<I", position) + small[link + 4 :] + pages


def _size() -> dict[int, Any]:
    return {_WIDTH: SIDE, _HEIGHT: SIDE}


def _header(first: int) -> bytes:
    return b"II*\0" + struct.pack("<I", first)
