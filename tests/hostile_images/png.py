"""PNG files: bombs of pixels, texts and profiles, and chunks without end."""

import struct
import zlib

from tests.nasty import chunk, encode, four

_START = b"\x89PNG\r\n\x1a\n"
_END = chunk(b"IEND", b"")


def png_files() -> dict[str, bytes]:
    """Return every file by its name."""
    small = encode(four(), "PNG")
    text = b"comment\0\0" + zlib.compress(bytes(900_000), 9)
    files = {
        "49mp": _black(7000, 7000),
        "49mp-of-16-bit-rgba": _black(7000, 7000, depth=16, colour=6),
        "49mp-interlaced": _black(7000, 7000, interlaced=1),
        "49mp-of-one-bit": _black(7000, 7000, depth=1, colour=0),
        "49mp-with-a-colour-key": _black(7000, 7000, extra=chunk(b"tRNS", bytes(6))),
        "49mp-of-palette-with-alpha": _black(
            7000, 7000, colour=3, extra=chunk(b"PLTE", bytes(768)) + chunk(b"tRNS", bytes(256))
        ),
        "one-row-of-50mp": _black(50_000_000, 1, colour=0),
        "one-column-of-50mp": _black(1, 50_000_000, colour=0),
        "pixels-for-1-of-49mp": _black(7000, 7000, rows=1),
        "pixels-for-1000-times-its-size": _black(64, 48, rows=100_000),
        "texts": _with(small, chunk(b"zTXt", text) * 300),
        "text-of-100-mb": _with(small, chunk(b"zTXt", b"a\0\0" + zlib.compress(bytes(10**8), 9))),
        "international-text": _with(
            small, chunk(b"iTXt", b"a\0\1\0\0\0" + zlib.compress(bytes(10**8), 9))
        ),
        "profile-of-100-mb": _with(
            small, chunk(b"iCCP", b"a\0\0" + zlib.compress(bytes(10**8), 9))
        ),
        "exif-that-points-to-itself": _with(
            small, chunk(b"eXIf", b"II*\0" + struct.pack("<IHHHIII", 8, 1, 0x112, 3, 1, 1, 8))
        ),
        "chunks-of-nothing": _with(small, chunk(b"teXt", b"") * 75_000),
        "data-in-pieces-of-1": _in_pieces(1),
        "film-of-4-billion": _with(small, chunk(b"acTL", struct.pack(">II", 2**32 - 1, 0))),
        "film-of-large-frames": _with(small, _frames(1000, 2**31 - 1)),
        "film-of-frames": _with(small, _frames(20_000, 64)),
        "chunk-of-4-gb": small[:33] + b"\xff\xff\xff\xffIDAT" + small[41:],
    }
    return {f"{name}.png": data for name, data in files.items()}


def _black(
    width: int,
    height: int,
    *,
    depth: int = 8,
    colour: int = 2,
    interlaced: int = 0,
    rows: int = 0,
    extra: bytes = b"",
) -> bytes:
    """Return a black picture with `rows` rows of data, all of them by default."""
    channels = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}[colour]
    row = 1 + -(-width * depth * channels // 8)
    packer = zlib.compressobj(9)
    data, left = b"", row * (rows or height) + interlaced * 8 * height
    while left > 0:
        data += packer.compress(bytes(min(left, 2**24)))
        left -= 2**24
    header = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, interlaced)
    pixels = chunk(b"IDAT", data + packer.flush())
    return _START + chunk(b"IHDR", header) + extra + pixels + _END


def _with(small: bytes, chunks: bytes) -> bytes:
    """Return a picture with more chunks behind its header."""
    return small[:33] + chunks + small[33:]


def _in_pieces(size: int) -> bytes:
    header = struct.pack(">IIBBBBB", 300, 200, 8, 2, 0, 0, 0)
    data = zlib.compress(bytes(901 * 200), 0)
    pieces = [chunk(b"IDAT", data[i : i + size]) for i in range(0, 60_000, size)]
    return _START + chunk(b"IHDR", header) + b"".join(pieces) + _END


def _frames(count: int, side: int) -> bytes:
    """Return the chunks of a film whose frames have no data."""
    controls = (struct.pack(">IIIIIHHBB", i, side, side, 0, 0, 1, 1, 0, 0) for i in range(count))
    film = chunk(b"acTL", struct.pack(">II", count, 0))
    return film + b"".join(chunk(b"fcTL", control) for control in controls)
