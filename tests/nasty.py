"""Image files that break programs, made on the spot, each with what reading it must give.

Every readable picture but the tiny ones shows four quadrants, so that one check finds a picture
that is turned, inverted, clipped or laid on black.
"""

import io
import struct
import zipfile
import zlib
from dataclasses import dataclass
from typing import Any

import numpy as np
from PIL import Image, ImageOps

Colour = tuple[int, int, int]
Quadrants = tuple[Colour, Colour, Colour, Colour]  # top left, top right, bottom left, bottom right

SIZE = (64, 48)  # pixels
ENDINGS = {
    "jpg": "JPEG",
    "png": "PNG",
    "webp": "WEBP",
    "gif": "GIF",
    "bmp": "BMP",
    "tif": "TIFF",
    "ppm": "PPM",
    "avif": "AVIF",
    "jp2": "JPEG2000",
}
COLOURS: Quadrants = ((200, 30, 30), (30, 180, 40), (30, 40, 200), (240, 220, 60))
GREYS: Quadrants = ((40, 40, 40), (120, 120, 120), (200, 200, 200), (250, 250, 250))
WHITE: Colour = (255, 255, 255)
BLACK: Colour = (0, 0, 0)


@dataclass(frozen=True)
class NastyFile:
    """The bytes of a file; `code` is "ok" or the error code, `quadrants` what a picture shows."""

    data: bytes
    code: str = "ok"
    quadrants: Quadrants | None = None


def nasty_files() -> dict[str, NastyFile]:
    """Return every file by its name; no two share one."""
    return {
        **_not_images(),
        **_damaged(),
        **_too_large(),
        **_unsupported(),
        **_modes(),
        **_formats(),
        **_oriented(),
        **_tiny(),
    }


def four(quadrants: Quadrants = COLOURS, size: tuple[int, int] = SIZE) -> Image.Image:
    """Return an RGB picture of four quadrants."""
    width, height = size
    image = Image.new("RGB", size, quadrants[0])
    for i, colour in enumerate(quadrants):
        # From its corner to the end: the next ones are painted over what is too much.
        image.paste(colour, (i % 2 * width // 2, i // 2 * height // 2, width, height))
    return image


def encode(image: Image.Image, kind: str, **options: Any) -> bytes:
    """Return an image as the bytes of a file."""
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def turned(orientation: int, kind: str = "JPEG", **options: Any) -> bytes:
    """Return `four` stored so that it stands upright once its EXIF orientation is applied."""
    undo = {
        2: Image.Transpose.FLIP_LEFT_RIGHT,
        3: Image.Transpose.ROTATE_180,
        4: Image.Transpose.FLIP_TOP_BOTTOM,
        5: Image.Transpose.TRANSPOSE,
        6: Image.Transpose.ROTATE_90,
        7: Image.Transpose.TRANSVERSE,
        8: Image.Transpose.ROTATE_270,
    }
    image = four().transpose(undo[orientation]) if orientation in undo else four()
    exif = Image.Exif()
    exif[0x0112] = orientation
    return encode(image, kind, exif=exif, **options)


def png(width: int, height: int, *, depth: int = 8, colour: int = 2, rows: bytes = b"") -> bytes:
    """Return a PNG written by hand: Pillow writes neither all depths nor a header that lies."""
    header = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(rows)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunk(name, body) for name, body in chunks)


def chunk(name: bytes, body: bytes) -> bytes:
    """Return one chunk of a PNG."""
    return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))


def with_segment(jpeg: bytes, marker: int, body: bytes) -> bytes:
    """Return a JPEG with one more segment behind its start marker."""
    segment = bytes([0xFF, marker]) + struct.pack(">H", len(body) + 2) + body
    return jpeg[:2] + segment + jpeg[2:]


def _not_images() -> dict[str, NastyFile]:
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("cat.jpg", encode(four(), "JPEG"))
    contents = {
        "text.jpg": b"This is no picture.\n",
        "page.jpg": b"<!doctype html><title>404</title>",
        "table.png": b"path,label\ncat.jpg,cat\n",
        "pointer.png": b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n",
        "drawing.svg": b'<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9"/>',
        "document.pdf": b"%PDF-1.7\n1 0 obj\n",
        "figure.eps": b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\nshowpage\n",
        "archive.zip": archive.getvalue(),
        "zip.jpg": archive.getvalue(),
        "zeros.jpg": bytes(1000),
        "one-byte.jpg": b"\xff",
        "icon.ico": encode(four(), "ICO"),
        "layers.psd": b"8BPS\0\1" + bytes(30),
        "film.mp4": b"\0\0\0\x18ftypmp42\0\0\0\0mp42isom" + bytes(50),
    }
    return {
        "empty.jpg": NastyFile(b"", "empty"),
        **{name: NastyFile(data, "not_an_image") for name, data in contents.items()},
    }


def _damaged() -> dict[str, NastyFile]:
    jpeg, whole = encode(four(), "JPEG"), encode(four(), "PNG")
    flipped = bytearray(whole)
    flipped[whole.index(b"IDAT") + 12] ^= 0xFF
    header = bytearray(whole)
    header[29] ^= 0xFF  # the first byte of the checksum of IHDR
    contents = {
        "truncated-in-header.jpg": jpeg[:30],
        "truncated-in-middle.jpg": jpeg[: jpeg.index(b"\xff\xda") + 40],
        "truncated-near-end.jpg": jpeg[:-20],
        "truncated-progressive.jpg": encode(four(), "JPEG", progressive=True)[:-100],
        **{f"truncated.{e}": _half(kind) for e, kind in ENDINGS.items()},
        "truncated-directory.tif": encode(four(), "TIFF", compression="tiff_lzw")[:-8],
        "signature-only.png": whole[:8],
        "corrupt-data.png": bytes(flipped),
        "corrupt-checksum.png": bytes(header),
        "no-pixels.png": png(0, 0),
        "text-bomb.png": _with_text_bomb(whole),
        "begins-like-bmp.txt": b"BMW drivers and other stories\n",
    }
    return {name: NastyFile(data, "cannot_decode") for name, data in contents.items()}


def _half(kind: str) -> bytes:
    data = encode(four(), kind)
    return data[: len(data) * 2 // 3]


def _with_text_bomb(whole: bytes) -> bytes:
    body = b"comment\0\0" + zlib.compress(bytes(8 * 2**20), 9)
    return whole[:33] + chunk(b"zTXt", body) + whole[33:]


def _too_large() -> dict[str, NastyFile]:
    contents = {
        "bomb-just-above.png": png(50_001, 1_000),
        "bomb-where-pillow-warns.png": png(10_000, 10_000),
        "bomb-where-pillow-refuses.png": png(2**31 - 1, 2**31 - 1),
        "bomb-header.jpg": _jpeg_that_claims(65_500, 65_500),
        "bomb-frame.gif": _gif_with_frame(65_535, 1_000),
        "bomb-tile.tif": tiff_with_tile(30_000),
        "bomb-canvas.webp": _webp_with_canvas(16_000, 16_000),
    }
    return {
        **{name: NastyFile(data, "too_many_pixels") for name, data in contents.items()},
        "bomb-of-scans.jpg": NastyFile(_jpeg_of_scans(300), "cannot_decode"),
    }


def _jpeg_that_claims(width: int, height: int) -> bytes:
    jpeg = encode(four(), "JPEG")
    size = jpeg.index(b"\xff\xc0") + 5
    return jpeg[:size] + struct.pack(">HH", height, width) + jpeg[size + 4 :]


def _gif_with_frame(width: int, height: int) -> bytes:
    gif = encode(four(), "GIF")
    size = gif.index(b",\0\0\0\0") + 5
    return gif[:size] + struct.pack("<HH", width, height) + gif[size + 4 :]


def _webp_with_canvas(width: int, height: int) -> bytes:
    webp = _film("WEBP")
    size = webp.index(b"VP8X") + 12
    canvas = struct.pack("<I", width - 1)[:3] + struct.pack("<I", height - 1)[:3]
    return webp[:size] + canvas + webp[size + 6 :]


def tiff_with_tile(side: int) -> bytes:
    """Return a TIFF of 8 x 8 pixels whose one tile has `side` x `side`, compressed to nothing."""
    body = zlib.compress(bytes(100))
    deflate, black_is_zero, start = 8, 1, 8 + 2 + 12 * 10 + 4
    tags = {
        256: 8,
        257: 8,
        258: 8,
        259: deflate,
        262: black_is_zero,
        277: 1,
        322: side,
        323: side,
        324: start,
        325: len(body),
    }
    entries = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in tags.items())
    return b"II*\0" + struct.pack("<IH", 8, len(tags)) + entries + bytes(4) + body


def _jpeg_of_scans(count: int) -> bytes:
    jpeg = encode(four(), "JPEG", progressive=True)
    return jpeg[:-2] + jpeg[jpeg.rindex(b"\xff\xda") : -2] * count + jpeg[-2:]


def _unsupported() -> dict[str, NastyFile]:
    pixels = np.linspace(0, 1, 64, dtype=np.float32).reshape(8, 8)
    contents = {
        "photo.heic": b"\0\0\0\x18ftypheic\0\0\0\0mif1heic" + bytes(50),
        "other.heic": b"\0\0\0\x18ftypmif1\0\0\0\0mif1heic" + bytes(50),
        "float.tif": encode(Image.fromarray(pixels), "TIFF"),
        "int32.tif": encode(Image.fromarray((pixels * 70_000).astype(np.int32)), "TIFF"),
        "float.pfm": encode(Image.fromarray(pixels), "PPM"),
    }
    return {name: NastyFile(data, "cannot_decode") for name, data in contents.items()}


def _modes() -> dict[str, NastyFile]:
    grey, wide = _grey(), np.asarray(_grey()).astype(np.uint16) * 257
    deep = np.asarray(four()).astype(">u2") * 257
    halves: Quadrants = (BLACK, WHITE, WHITE, BLACK)
    cmyk = four().convert("CMYK")
    return {
        "cmyk.jpg": NastyFile(encode(cmyk, "JPEG"), quadrants=COLOURS),
        "cmyk.tif": NastyFile(encode(cmyk, "TIFF"), quadrants=COLOURS),
        "ycck.jpg": NastyFile(_ycck(), quadrants=COLOURS),
        "grey.jpg": NastyFile(encode(grey, "JPEG"), quadrants=GREYS),
        "grey.png": NastyFile(encode(grey, "PNG"), quadrants=GREYS),
        "grey-16-bit.png": NastyFile(encode(Image.fromarray(wide), "PNG"), quadrants=GREYS),
        "grey-16-bit.tif": NastyFile(encode(Image.fromarray(wide), "TIFF"), quadrants=GREYS),
        "grey-16-bit.pgm": NastyFile(_pgm(wide), quadrants=GREYS),
        "big-endian-16-bit.tif": NastyFile(_big_endian(wide), quadrants=GREYS),
        "colour-16-bit.png": NastyFile(
            png(*SIZE, depth=16, rows=b"".join(b"\0" + row.tobytes() for row in deep)),
            quadrants=COLOURS,
        ),
        "one-bit.png": NastyFile(encode(four(halves).convert("1"), "PNG"), quadrants=halves),
        **_transparent(),
    }


def _grey() -> Image.Image:
    return four(GREYS).convert("L")


def _pgm(wide: np.ndarray[Any, np.dtype[np.uint16]]) -> bytes:
    return b"P5 %d %d 65535\n" % SIZE + wide.astype(">u2").tobytes()


def _big_endian(wide: np.ndarray[Any, np.dtype[np.uint16]]) -> bytes:
    return encode(Image.frombytes("I;16B", SIZE, wide.astype(">u2").tobytes()), "TIFF")


def _ycck() -> bytes:
    """Return a JPEG as Photoshop writes it: the inverted colours as luma and chroma, and black."""
    y, cb, cr = (ImageOps.invert(band) for band in ImageOps.invert(four()).convert("YCbCr").split())
    image = Image.merge("CMYK", (y, cb, cr, Image.new("L", SIZE, 0)))
    jpeg = bytearray(encode(image, "JPEG"))
    jpeg[jpeg.index(b"Adobe") + 11] = 2  # "the planes are YCCK"
    return bytes(jpeg)


def _transparent() -> dict[str, NastyFile]:
    """Return pictures whose bottom right quadrant is transparent, over a colour to be hidden."""
    hidden: Quadrants = (*COLOURS[:3], WHITE)
    alpha = four(((255,) * 3, (255,) * 3, (255,) * 3, BLACK)).convert("L")
    rgba = four().copy()
    rgba.putalpha(alpha)
    half = four(((0, 0, 0),) * 4).copy()
    half.putalpha(_grey())  # black at 40, 120, 200 and 250 of 255
    luminous = _grey()
    luminous.putalpha(alpha)
    palette = four().convert("P", palette=Image.Palette.ADAPTIVE, colors=4)
    index = int(np.asarray(palette)[-1, -1])
    partly = bytes(0 if i == index else 255 for i in range(4))
    whites: Quadrants = ((215,) * 3, (135,) * 3, (55,) * 3, (5,) * 3)
    return {
        "rgba.png": NastyFile(encode(rgba, "PNG"), quadrants=hidden),
        "rgba.webp": NastyFile(encode(rgba, "WEBP", lossless=True), quadrants=hidden),
        "rgba.tif": NastyFile(encode(rgba, "TIFF"), quadrants=hidden),
        "half-transparent.png": NastyFile(encode(half, "PNG"), quadrants=whites),
        "grey-alpha.png": NastyFile(encode(luminous, "PNG"), quadrants=(*GREYS[:3], WHITE)),
        "palette.png": NastyFile(encode(palette, "PNG"), quadrants=COLOURS),
        "palette-one-index.png": NastyFile(
            encode(palette, "PNG", transparency=index), quadrants=hidden
        ),
        "palette-alpha.png": NastyFile(
            encode(palette, "PNG", transparency=partly), quadrants=hidden
        ),
        "palette.gif": NastyFile(encode(palette, "GIF", transparency=index), quadrants=hidden),
        "colour-key.png": NastyFile(
            encode(four(), "PNG", transparency=COLOURS[3]), quadrants=hidden
        ),
    }


def _formats() -> dict[str, NastyFile]:
    jpeg = encode(four(), "JPEG", quality=95)
    contents = {
        "progressive.jpg": encode(four(), "JPEG", progressive=True),
        "trailing-garbage.jpg": jpeg + b"\0garbage" * 50,
        "trailing-film.jpg": jpeg + b"\xff\xda film" * 500,
        "broken-exif.jpg": with_segment(jpeg, 0xE1, b"Exif\0\0no TIFF header"),
        "png-in-disguise.jpg": encode(four(), "PNG"),
        "jpeg-in-disguise.png": jpeg,
        "no-ending": jpeg,
        "several.mpo": _film("MPO"),
        "animated.gif": _film("GIF"),
        "animated.webp": _film("WEBP", lossless=True),
        "animated.png": _film("PNG"),
        "several-pages.tif": _film("TIFF"),
        "lossy.webp": encode(four(), "WEBP", quality=95),
        "bitmap.bmp": encode(four(), "BMP"),
        "photo.avif": encode(four(), "AVIF", quality=95),
        "plain.ppm": encode(four(), "PPM"),
        "photo.jp2": encode(four(), "JPEG2000"),
        "stream.j2k": encode(four(), "JPEG2000", no_jp2=True),
        "lzw.tif": encode(four(), "TIFF", compression="tiff_lzw"),
        "jpeg-inside.tif": encode(four(), "TIFF", compression="jpeg", quality=95),
    }
    return {name: NastyFile(data, quadrants=COLOURS) for name, data in contents.items()}


def _film(kind: str, **options: Any) -> bytes:
    """Return two frames, of which the first is to be read."""
    return encode(four(), kind, save_all=True, append_images=[four(GREYS)], **options)


def _oriented() -> dict[str, NastyFile]:
    return {
        f"orientation-{i}.jpg": NastyFile(turned(i, quality=95), quadrants=COLOURS)
        for i in range(1, 9)
    }


def _tiny() -> dict[str, NastyFile]:
    shapes = {"1x1": (1, 1), "1x5000": (1, 5_000), "5000x1": (5_000, 1)}
    return {
        f"{name}.{ending}": NastyFile(encode(Image.new("RGB", size, COLOURS[0]), kind))
        for name, size in shapes.items()
        for ending, kind in (("png", "PNG"), ("jpg", "JPEG"))
    }
