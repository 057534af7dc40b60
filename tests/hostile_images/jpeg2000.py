"""JPEG 2000 files, written by hand: a few hundred bytes that ask for millions of pieces.

Source: ISO/IEC 15444-1, Annex A.
"""

import struct

_SOC, _EOC = b"\xff\x4f", b"\xff\xd9"
LARGE, MEDIUM = 7000, 2000  # pixels of a side: 49 and 4 million in all


def jpeg2000_files() -> dict[str, bytes]:
    """Return every file by its name."""
    files = {
        "precincts-of-1x1": codestream(LARGE, levels=0, precinct=0, block=(0, 0)),
        "blocks-of-4x4": codestream(LARGE, levels=0, block=(0, 0)),
        "blocks-just-below-the-bound": codestream(2300, levels=0, block=(0, 0)),
        "precincts-just-below-the-bound": codestream(570, levels=0, precinct=0, block=(0, 0)),
        "tiles-of-1x1": codestream(LARGE, tile=1),
        "tiles-just-below-the-bound": codestream(LARGE, tile=55, levels=1),
        "32-levels": codestream(LARGE, levels=32),
        "65535-layers": codestream(LARGE, layers=65_535),
        "packets-just-below-the-bound": codestream(MEDIUM, layers=65_535, levels=5, packets=10**6),
        "16384-components": codestream(100, components=16_384),
        "components-at-the-bound": codestream(MEDIUM, components=36),
        "38-bits": codestream(MEDIUM, depth=38),
        "tile-parts": codestream(LARGE, parts=100_000),
        "tile-parts-below-the-bound": codestream(MEDIUM, parts=60_000),
        "comments": codestream(MEDIUM, extra=_segment(0x64, bytes(65_000)) * 15),
        "styles-of-components": codestream(MEDIUM, extra=_coding_style_of_component() * 50_000),
        "black": codestream(LARGE, packets=18),
        "packets-of-noise": codestream(MEDIUM, packets=2000, fill=0xA5),
    }
    boxes = {
        "nested-boxes": b"\0\0\0\x00jp2h" * 20_000,
        "box-of-2-to-the-63": b"\0\0\0\1jp2h" + struct.pack(">Q", 2**63 - 1),
        "palette-of-boxes": _box(b"jp2h", _palette(1024, 255)),
    }
    black = codestream(MEDIUM, packets=18)
    jp2 = {name: _SIGNATURE + box + _box(b"jp2c", black) for name, box in boxes.items()}
    return {f"{name}.j2k": data for name, data in files.items()} | {
        f"{name}.jp2": data for name, data in jp2.items()
    }


def codestream(
    side: int,
    *,
    tile: int = 0,
    components: int = 3,
    depth: int = 8,
    levels: int = 5,
    block: tuple[int, int] = (4, 4),
    precinct: int | None = None,
    layers: int = 1,
    packets: int = 1,
    parts: int = 1,
    fill: int = 0,
    extra: bytes = b"",
) -> bytes:
    """Return a codestream of a square image, whose packets are empty unless `fill` says otherwise.

    `block` and `precinct` are exponents of 2, of a block less two as they are stored.
    """
    tile = tile or side
    size = struct.pack(">H8IH", 0, side, side, 0, 0, tile, tile, 0, 0, components)
    style = bytes([int(precinct is not None), 0]) + struct.pack(">H", layers) + b"\1"
    style += bytes([levels, *block, 0, 1])
    if precinct is not None:
        style += bytes([precinct * 17] * (levels + 1))
    quantization = bytes([0x40, *[0x40] * (3 * levels + 1)])
    data = bytes([fill]) * packets
    return (
        _SOC
        + _segment(0x51, size + bytes([depth - 1, 1, 1]) * components)
        + _segment(0x52, style)
        + _segment(0x5C, quantization)
        + extra
        + b"".join(_tile_part(0, part, data if part == 0 else b"") for part in range(parts))
        + _EOC
    )


def _tile_part(tile: int, part: int, data: bytes) -> bytes:
    head = struct.pack(">HIBB", tile, 14 + len(data), part % 255, 0)
    return _segment(0x90, head) + b"\xff\x93" + data


def _coding_style_of_component() -> bytes:
    return _segment(0x53, bytes([0, 0, 32, 4, 4, 0, 1]))


def _segment(marker: int, body: bytes) -> bytes:
    return bytes([0xFF, marker]) + struct.pack(">H", len(body) + 2) + body


def _box(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body) + 8) + kind + body


def _palette(entries: int, columns: int) -> bytes:
    header = struct.pack(">IIHBBBB", MEDIUM, MEDIUM, 3, 7, 7, 0, 0)
    palette = struct.pack(">HB", entries, columns) + bytes([7] * columns + [0] * entries * columns)
    return _box(b"ihdr", header) + _box(b"pclr", palette)


_SIGNATURE: bytes = _box(b"jP  ", b"\r\n\x87\n") + _box(b"ftyp", b"jp2 \0\0\0\0jp2 ")
