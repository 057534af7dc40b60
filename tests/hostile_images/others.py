"""GIF, WebP, AVIF, BMP and PPM files, and formats that are not accepted."""

import functools
import operator
import struct

from PIL import Image

from tests.nasty import COLOURS, encode, four

SIDE = 7000  # pixels


def other_files() -> dict[str, bytes]:
    """Return every file by its name."""
    made = (_cheap(), _gif(), _webp(), _avif(), _bmp(), _ppm(), _not_accepted())
    return functools.reduce(operator.or_, made)


def _cheap() -> dict[str, bytes]:
    """Return the largest images that are decoded beside others, in the process that answers."""
    jpeg, small = Image.new("RGB", (4000, 4000)), Image.new("RGBA", (2000, 2000))
    return {
        "as-large-as-cheap.jpg": encode(jpeg, "JPEG"),
        "as-large-as-cheap-cmyk.jpg": encode(jpeg.convert("CMYK"), "JPEG"),
        "as-large-as-cheap.png": encode(small, "PNG"),
        "as-large-as-cheap.webp": encode(small, "WEBP"),
        "as-large-as-cheap.gif": encode(Image.new("L", (4000, 2000)), "GIF"),
    }


def _gif() -> dict[str, bytes]:
    black = _black()
    large, small = encode(black, "GIF"), encode(four(), "GIF")
    comment = b"\x21\xfe" + (b"\xff" + bytes(255)) * 3000 + b"\0"
    frame = b"\x21\xf9\4\0\0\0\0\0" + small[small.index(b",\0\0\0\0") : -1]
    outside = b"," + struct.pack("<HHHHB", 65_000, 65_000, 700, 700, 0) + b"\2\1\x44\0"
    files = {
        "49mp": large,
        "49mp-interlaced": encode(black, "GIF", interlace=1),
        "frames": small[:-1] + frame * (800_000 // len(frame)) + b";",
        "frame-outside": small[:-1] + outside + b";",
        "first-frame-outside": small[: small.index(b",\0\0\0\0")] + outside + b";",
        "comments": small[:13] + comment + small[13:],
        "extensions-of-nothing": small[:13] + b"\x21\x01\0" * 250_000 + small[13:],
        "blocks-of-1": _gif_in_blocks_of_one(),
        "codes-of-12-bits": small[: small.index(b",\0\0\0\0") + 10] + b"\x0c\xff" + bytes(90_000),
    }
    return {f"{name}.gif": data for name, data in files.items()}


def _gif_in_blocks_of_one() -> bytes:
    """Return a picture whose every code, a clear, has a block of its own."""
    screen = b"GIF89a" + struct.pack("<HHBBB", SIDE, SIDE, 0x80, 0, 0) + bytes(6)
    frame = b"," + struct.pack("<HHHHB", 0, 0, SIDE, SIDE, 0) + b"\2"
    return screen + frame + b"\1\x24" * 400_000 + b"\0;"


def _webp() -> dict[str, bytes]:
    black = _black().convert("RGB")
    film = encode(four(), "WEBP", save_all=True, append_images=[four(COLOURS[::-1])] * 50)
    canvas = film.index(b"VP8X") + 12
    size = struct.pack("<I", SIDE - 1)[:3]
    files = {
        "49mp": encode(black, "WEBP"),
        "49mp-lossless": encode(black, "WEBP", lossless=True, quality=0, method=0),
        "film-on-49mp": film[:canvas] + 2 * size + film[canvas + 6 :],
        "profile": _riff(encode(four(), "WEBP", icc_profile=bytes(800_000))[8:]),
        "chunks-of-nothing": _riff(film[8:] + b"JUNK\0\0\0\0" * 100_000),
        "size-of-4-gb": b"RIFF\xff\xff\xff\xff" + film[8:],
    }
    return {f"{name}.webp": data for name, data in files.items()}


def _riff(body: bytes) -> bytes:
    return b"RIFF" + struct.pack("<I", len(body)) + body


def _avif() -> dict[str, bytes]:
    small = encode(four(), "AVIF")
    large = encode(Image.new("RGB", (4000, 4000)), "AVIF", speed=10)
    size = small.index(b"ispe") + 8
    film = encode(four(), "AVIF", save_all=True, append_images=[four()] * 20, speed=10)
    box = struct.pack(">I", 8) + b"meta"
    files = {
        "16mp": large,
        "states-49mp": small[:size] + struct.pack(">II", SIDE, SIDE) + small[size + 8 :],
        "states-4-billion": small[:size] + b"\xff" * 8 + small[size + 8 :],
        "film": film,
        "boxes-of-nothing": small[:32] + box * 100_000 + small[32:],
        "box-of-2-to-the-63": small[:32] + b"\0\0\0\1meta" + struct.pack(">Q", 2**63 - 1),
    }
    return {f"{name}.avif": data for name, data in files.items()}


def _bmp() -> dict[str, bytes]:
    end_of_line, jump, run = b"\0\0", b"\0\2\xff\xff", b"\xff\0"
    files = {
        "runs": _bitmap(SIDE, SIDE, 1, (run * 28 + end_of_line) * SIDE),
        "runs-of-1": _bitmap(SIDE, SIDE, 1, b"\1\0" * 450_000),
        "ends-of-line": _bitmap(SIDE, SIDE, 1, end_of_line * SIDE),
        "jumps": _bitmap(SIDE, SIDE, 1, jump * 200_000),
        "literals": _bitmap(SIDE, SIDE, 1, (b"\0\xff" + bytes(256)) * 3000),
        "runs-of-4-bit": _bitmap(SIDE, SIDE, 2, run * 200_000, bits=4),
        "upside-down": _bitmap(SIDE, -SIDE, 0, b""),
        "width-of-2-to-the-31": _bitmap(2**31 - 1, 1, 0, b""),
        "negative-width": _bitmap(-SIDE, SIDE, 0, b""),
        "colours-of-4-billion": _bitmap(9, 9, 0, bytes(900), colours=2**32 - 1),
        "header-of-4-gb": b"BM" + bytes(8) + struct.pack("<II", 54, 2**32 - 1) + bytes(900),
    }
    return {f"{name}.bmp": data for name, data in files.items()}


def _bitmap(
    width: int, height: int, compression: int, data: bytes, *, bits: int = 8, colours: int = 256
) -> bytes:
    start = 14 + 40 + 4 * 256
    header = struct.pack(
        "<IiiHHIIiiII", 40, width, height, 1, bits, compression, len(data), 1, 1, colours, 0
    )
    return b"BM" + struct.pack("<III", start + len(data), 0, start) + header + bytes(1024) + data


def _ppm() -> dict[str, bytes]:
    return {
        "text.ppm": b"P3 400 400 255 " + b"7 " * 480_000,
        "text-of-one-number.ppm": b"P3 4000 4000 255 " + b"7" * 900_000,
        "text-of-comments.ppm": b"P3 #" + b"x" * 900_000 + b"\n9 9 255 " + b"7 " * 243,
        "bits-as-text.pbm": b"P1 900 900 " + b"1" * 810_000,
        "size-of-many-digits.ppm": b"P6 " + b"9" * 900_000 + b" 9 255 ",
        "without-pixels.ppm": b"P6 7000 7000 255 ",
        "16-bit-without-pixels.pgm": b"P5 7000 7000 65535 ",
        "float-without-pixels.pfm": b"Pf 7000 7000 -1.0\n",
    }


def _not_accepted() -> dict[str, bytes]:
    return {
        "icon.ico": encode(four(), "ICO"),
        "icon-of-65535.ico": b"\0\0\1\0\xff\xff" + bytes(16 * 65_535),
        "layers.psd": b"8BPS\0\1" + bytes(6) + struct.pack(">HIIHH", 56, 30_000, 30_000, 16, 3),
        "program.eps": b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 30000 30000\n{} loop\n",
        "entities.svg": b'<?xml version="1.0"?><!DOCTYPE a [<!ENTITY b "&c;&c;">]><svg/>',
    }


@functools.cache
def _black() -> Image.Image:
    return Image.new("L", (SIDE, SIDE))
