"""JPEG files of black pixels, written by hand: scans, restarts and segments without end.

Source: ITU-T T.81, Annexes B, F and G.
"""

import struct

from tests.nasty import encode, four, with_segment

_START, _END = b"\xff\xd8", b"\xff\xd9"
_BASELINE, _EXTENDED, _PROGRESSIVE, _LOSSLESS, _ARITHMETIC = 0xC0, 0xC1, 0xC2, 0xC3, 0xC9
LARGE = 7070  # pixels of a side


def jpeg_files() -> dict[str, bytes]:
    """Return every file by its name."""
    small = encode(four(), "JPEG")
    orientation = b"Exif\0\0II*\0" + struct.pack("<IHHHIII", 8, 1, 0x112, 3, 1, 1, 8)
    files = {
        "100-scans-50mp": progressive(LARGE, 100),
        "20-scans-50mp": progressive(LARGE, 20),
        "100-scans-10mp": progressive(3100, 100),
        "100-scans-small": progressive(300, 100),
        "restart-after-each-block": _restarting(2000, _restarts(250 * 250)),
        "restarts-that-never-come": _restarting(LARGE, b""),
        "restarts-only": _restarting(2000, _restarts(400_000)),
        "header-of-50mp-without-data": _frame(_BASELINE, LARGE, LARGE) + _scan() + _END,
        "no-height": _frame(_BASELINE, 1000, 0) + _scan() + bytes(1000) + _END,
        "255-components": _START + _frame_of(_BASELINE, 99, 99, list(range(255))) + _END,
        "12-bit": _frame(_EXTENDED, 1000, 1000, depth=12) + _scan() + bytes(9000) + _END,
        "lossless": _frame(_LOSSLESS, 1000, 1000) + _scan() + bytes(9000) + _END,
        "arithmetic": _frame(_ARITHMETIC, 5000, 5000) + _scan() + bytes(9000) + _END,
        "sampling-of-4x4": _sampled(4000, 0x44),
        "comments": _many(small, 0xFE, bytes(65_000), 14),
        "comments-of-nothing": _many(small, 0xFE, b"", 230_000),
        "app-segments-of-nothing": _many(small, 0xED, b"", 230_000),
        "photoshop-blocks": _many(
            small, 0xED, b"Photoshop 3.0\0" + b"8BIM\4\4\0\0\0\0\0\0" * 5_400, 14
        ),
        "exif-segments": _many(small, 0xE1, orientation, 20_000),
        "exif-that-points-to-itself": with_segment(small, 0xE1, orientation),
        "icc-profiles": _many(small, 0xE2, b"ICC_PROFILE\0\1\xff" + bytes(60_000), 15),
        "xmp": _many(small, 0xE1, b"http://ns.adobe.com/xap/1.0/\0" + b"<a>" * 21_000, 14),
        "mpo-of-4-billion": with_segment(small, 0xE2, _pictures(2**32 - 1)),
        "mpo-of-65535": with_segment(small, 0xE2, _pictures(65_535)),
        "huffman-tables": _START + _segment(0xC4, _HUFFMAN_DC) * 30_000 + small[2:],
        "quantization-tables": _START + _segment(0xDB, bytes(65)) * 12_000 + small[2:],
        "markers-of-nothing": small[:2] + b"\xff" * 900_000 + small[2:],
    }
    return {f"{name}.jpg": data for name, data in files.items()}


def progressive(side: int, scans: int) -> bytes:
    """Return a black picture of three components whose coefficients come again and again."""
    blocks = (-(-side // 8)) ** 2
    whole = _segment(0xDA, bytes([3, 1, 0, 2, 0, 3, 0, 0, 0, 0])) + bytes(-(-3 * blocks // 8))
    runs = bytes(-(-15 * -(-blocks // 16_384) // 8))
    again = [_segment(0xDA, bytes([1, 1 + i % 3, 1, 1, 63, 0])) + runs for i in range(scans - 1)]
    head = _frame_of(_PROGRESSIVE, side, side, [1, 2, 3]) + _tables()
    return _START + head + whole + b"".join(again) + _END


def _restarting(side: int, data: bytes) -> bytes:
    interval = _segment(0xDD, struct.pack(">H", 1))
    return _frame(_BASELINE, side, side) + interval + _scan() + data + _END


def _restarts(count: int) -> bytes:
    """Return blocks of zeros, each followed by a restart."""
    eight = b"".join(b"\0" + bytes([0xFF, 0xD0 + i]) for i in range(8))
    return eight * (count // 8)


def _sampled(side: int, sampling: int) -> bytes:
    frame = _frame_of(_BASELINE, side, side, [1, 2, 3], sampling=sampling)
    scan = _segment(0xDA, bytes([3, 1, 0, 2, 0, 3, 0, 0, 63, 0]))
    return _START + frame + _tables() + scan + bytes(300_000) + _END


def _frame(kind: int, width: int, height: int, *, depth: int = 8) -> bytes:
    return _START + _frame_of(kind, width, height, [1], depth=depth) + _tables()


def _frame_of(
    kind: int,
    width: int,
    height: int,
    components: list[int],
    *,
    depth: int = 8,
    sampling: int = 0x11,
) -> bytes:
    each = b"".join(bytes([i, sampling if i == 1 else 0x11, 0]) for i in components)
    body = struct.pack(">BHHB", depth, height, width, len(components)) + each
    return _segment(0xDB, b"\0" + b"\1" * 64) + _segment(kind, body)


def _tables() -> bytes:
    return _segment(0xC4, _HUFFMAN_DC) + _segment(0xC4, _HUFFMAN_AC)


def _scan() -> bytes:
    return _segment(0xDA, bytes([1, 1, 0, 0, 63, 0]))


def _many(jpeg: bytes, marker: int, body: bytes, count: int) -> bytes:
    return jpeg[:2] + _segment(marker, body) * count + jpeg[2:]


def _segment(marker: int, body: bytes) -> bytes:
    return bytes([0xFF, marker]) + struct.pack(">H", len(body) + 2) + body


def _pictures(count: int) -> bytes:
    """Return an index of several pictures (MPF) that states a number of them."""
    tags = ((0xB001, 4, 1, count), (0xB002, 7, 2**32 - 1, 50))
    entries = b"".join(struct.pack("<HHII", *tag) for tag in tags)
    return b"MPF\0II*\0" + struct.pack("<IH", 8, len(tags)) + entries + bytes(64)


# One code of one bit each: "no difference", and "nothing in the next 16,384 blocks".
_HUFFMAN_DC, _HUFFMAN_AC = b"\x00\1" + bytes(15) + b"\0", b"\x11\1" + bytes(15) + b"\xe0"
