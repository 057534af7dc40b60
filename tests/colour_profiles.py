"""ICC profiles written by hand: three primaries and one curve, as phones and cameras write them."""

import struct
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

# X, Y and Z of red, green and blue in the profile's white, D50.
SRGB = ((0.4361, 0.2225, 0.0139), (0.3851, 0.7169, 0.0971), (0.1431, 0.0606, 0.7141))
DISPLAY_P3 = ((0.5151, 0.2412, -0.0011), (0.2919, 0.6922, 0.0419), (0.1572, 0.0666, 0.7841))
ADOBE_RGB = ((0.6097, 0.3111, 0.0195), (0.2053, 0.6257, 0.0609), (0.1492, 0.0632, 0.7446))
_WHITE = (0.9642, 1.0, 0.8249)
_CURVE = (2.4, 1 / 1.055, 0.055 / 1.055, 1 / 12.92, 0.04045)  # of sRGB and Display P3


def profile(primaries: Sequence[Sequence[float]]) -> bytes:
    """Return a profile of these primaries, with the curve of sRGB."""
    curve = b"para" + bytes(4) + struct.pack(">HH", 3, 0) + b"".join(map(_fixed, _CURVE))
    tags = {
        **dict(zip((b"rXYZ", b"gXYZ", b"bXYZ"), map(_xyz, primaries), strict=True)),
        b"wtpt": _xyz(_WHITE),
        **dict.fromkeys((b"rTRC", b"gTRC", b"bTRC"), curve),
    }
    place, table, body = 128 + 4 + 12 * len(tags), b"", b""
    for name, data in tags.items():
        table += name + struct.pack(">II", place + len(body), len(data))
        body += data
    whole = struct.pack(">I", len(tags)) + table + body
    head = struct.pack(">I", 128 + len(whole)) + bytes(4) + b"\x04\x20\0\0mntrRGB XYZ " + bytes(12)
    head += b"acsp" + bytes(28) + b"".join(map(_fixed, _WHITE))
    return head.ljust(128, b"\0") + whole


def in_srgb(
    colours: NDArray[np.uint8], primaries: Sequence[Sequence[float]]
) -> NDArray[np.float64]:
    """Return colours (N, 3) of these primaries in sRGB, 0 to 255: the definition."""
    linear = _linear(colours / 255)
    there = linear @ np.array(primaries) @ np.linalg.inv(np.array(SRGB))
    there = there.clip(0, 1)
    curved = np.where(there > 0.0031308, 1.055 * there ** (1 / 2.4) - 0.055, 12.92 * there)
    return 255 * np.asarray(curved, np.float64)


def _linear(values: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.where(values > 0.04045, ((values + 0.055) / 1.055) ** 2.4, values / 12.92)


def _xyz(values: Sequence[float]) -> bytes:
    return b"XYZ " + bytes(4) + b"".join(map(_fixed, values))


def _fixed(value: float) -> bytes:
    return struct.pack(">i", round(value * 65536))
