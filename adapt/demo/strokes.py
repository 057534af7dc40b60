"""Draw the demo's source images: pen strokes from printed glyphs.

The centre line of a glyph in one of matplotlib's fonts is warped, drawn again with a pen of
another width and reduced to the resolution of the UCI digits: a bitmap scaled to the full height
of 32x32 pixels, counted in 4x4 blocks to 8x8 cells of 0-16, and enlarged to a 32x32 grey image.
"""

from pathlib import Path

import matplotlib as mpl
import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw, ImageFont
from scipy import ndimage

Floats = npt.NDArray[np.float64]
Bits = npt.NDArray[np.bool_]

SIDE = 32
_CELLS = 8
_CELL_MAX = 16


def glyph_strokes(font: str, character: str) -> Floats:
    """Find the centre line of a printed glyph.

    Args:
        font: Name of a font file that matplotlib ships, such as `DejaVuSans.ttf`.
        character: The one character to draw.

    Returns:
        The points (x right, y down) of the centre line, float64 (P, 2), centred on 0, with the
        longer side of the glyph from -1 to 1.

    Raises:
        OSError: If matplotlib ships no such font.
    """
    rows, columns = np.nonzero(_thin(_print(font, character)))
    points = np.stack([columns, rows], axis=1).astype(np.float64)
    low, high = points.min(axis=0), points.max(axis=0)
    scaled: Floats = (points - (low + high) / 2) * (2 / (high - low).max())
    return scaled


def draw_strokes(strokes: Floats, generator: np.random.Generator) -> Image.Image:
    """Warp a centre line at random, draw it with a random pen, at the resolution of UCI's digits.

    Args:
        strokes: Centre line as `glyph_strokes` returns it, (P, 2).
        generator: Source of every random choice.

    Returns:
        A grey image of 32x32 pixels, light on dark.
    """
    ink = _ink(_cut(_warp(strokes, generator), generator), generator)
    blocks = ink.reshape(_CELLS, SIDE // _CELLS, _CELLS, SIDE // _CELLS)
    return enlarge(blocks.sum(axis=(1, 3)))


def enlarge(cells: npt.NDArray[np.float64]) -> Image.Image:
    """Enlarge one digit of UCI's format to an image.

    Args:
        cells: Ink of each cell, 0-16, (8, 8).

    Returns:
        A grey image of 32x32 pixels, light on dark.
    """
    grey = Image.fromarray(np.round(cells * (255 / _CELL_MAX)).astype(np.uint8))
    return grey.resize((SIDE, SIDE), Image.Resampling.BICUBIC)


def _print(font: str, character: str) -> Bits:
    """Print a glyph, cropped to its ink and scaled to 64 pixels on its longer side."""
    path = Path(mpl.get_data_path()) / "fonts" / "ttf" / font
    face = ImageFont.truetype(str(path), 160)
    left, top, right, bottom = face.getbbox(character)
    picture = Image.new("L", (int(right - left) + 8, int(bottom - top) + 8))
    ImageDraw.Draw(picture).text((4 - left, 4 - top), character, font=face, fill=255)
    picture = picture.crop(picture.getbbox())
    scale = 64 / max(picture.size)
    size = (max(1, round(picture.width * scale)), max(1, round(picture.height * scale)))
    return np.asarray(picture.resize(size, Image.Resampling.LANCZOS)) > 127


def _thin(bitmap: Bits) -> Bits:
    """Thin a bitmap to lines one pixel wide (Zhang and Suen, 1984)."""
    pixels = np.pad(bitmap, 1).astype(np.int64)
    changed = True
    while changed:
        changed = False
        for corner in (0, 2):
            removable = _removable(pixels, corner)
            changed |= bool(removable.any())
            pixels[removable] = 0
    return pixels.astype(np.bool_)


def _removable(pixels: npt.NDArray[np.int64], corner: int) -> Bits:
    """Mark the pixels that one of Zhang and Suen's two passes peels off."""
    steps = ((-1, 0), (-1, 1), (0, 1), (1, 1), (1, 0), (1, -1), (0, -1), (-1, -1))
    ring = [np.roll(pixels, (-down, -right), axis=(0, 1)) for down, right in steps]
    filled: npt.NDArray[np.int64] = np.sum(ring, axis=0)
    rises = sum((ring[i] == 0) & (ring[(i + 1) % 8] == 1) for i in range(8))
    first = ring[0] * ring[2] * ring[4 if corner == 0 else 6]
    second = ring[4] * ring[6] * ring[2 if corner == 0 else 0]
    edge = (rises == 1) & (first == 0) & (second == 0)
    marked: Bits = (pixels == 1) & (filled >= 2) & (filled <= 6) & edge
    return marked


def _warp(strokes: Floats, generator: np.random.Generator) -> Floats:
    """Deform a centre line as handwriting varies: waves, proportions, shear, slant, rotation."""
    x, y = strokes[:, 0], strokes[:, 1]
    half_width = max(float(np.abs(x).max()), 0.2)
    across, down = np.clip(generator.normal(0, (0.15, 0.2)), -0.45, 0.45)
    waves = _waves(strokes, generator)
    # Moving the middle but not the ends makes one half of the glyph larger than the other.
    x, y = x + across * half_width * (1 - (x / half_width) ** 2), y + down * (1 - y * y)
    x, y = x + waves[:, 0], y + waves[:, 1]
    x = x * np.exp(generator.normal(0, 0.25) * y + generator.normal(0, 0.1))
    y = y + generator.normal(0, 0.15) * x
    turn, slant = generator.normal(0, (0.06, 0.15))
    x, y = x * np.cos(turn) - y * np.sin(turn), x * np.sin(turn) + y * np.cos(turn)
    return np.stack([x - slant * y, y], axis=1)


def _waves(strokes: Floats, generator: np.random.Generator) -> Floats:
    """Sum three slow random waves: the smooth part of an elastic warp, (P, 2)."""
    offsets = np.zeros_like(strokes)
    for _ in range(3):
        phase = strokes @ generator.normal(0, 1.5, size=2)
        start, height = generator.uniform(0, 2 * np.pi, size=2), generator.normal(0, 0.1, size=2)
        offsets += height * np.sin(phase[:, None] + start)
    return offsets


def _cut(strokes: Floats, generator: np.random.Generator) -> Floats:
    """Lift the pen: with probability 0.3, leave out the points around a random one."""
    if generator.random() >= 0.3:
        return strokes
    centre = strokes[generator.integers(len(strokes))]
    kept = np.hypot(*(strokes - centre).T) > generator.uniform(0.05, 0.3)
    return strokes[kept] if kept.sum() > len(strokes) / 2 else strokes


def _ink(strokes: Floats, generator: np.random.Generator) -> Bits:
    """Draw with a round pen, then stretch to the full height and a usual width, (32, 32).

    UCI's preparation stretches narrow digits sideways and their pen stroke with them, so the pen
    is an ellipse here.
    """
    radius = np.exp(generator.normal(np.log(2.3), 0.25))
    width = np.clip(generator.normal(21.5, 2.0), 8, 30)
    low, high = strokes.min(axis=0), strokes.max(axis=0)
    wide, tall = np.maximum(high - low, 1e-3)
    per_unit = (SIDE - 2 * radius) / tall
    stretch = np.clip(width / (wide * per_unit + 2 * radius), 1 / 2.2, 2.2)
    columns = (strokes[:, 0] - (low[0] + high[0]) / 2) * per_unit * stretch
    columns += SIDE / 2 + generator.normal(0, 0.7)
    rows = (strokes[:, 1] - low[1]) * per_unit + radius
    return _stamp(columns, rows, radius, stretch)


def _stamp(columns: Floats, rows: Floats, radius: float, stretch: float) -> Bits:
    """Mark the pixels within the pen of any point, counted at twice the resolution."""
    blank = np.ones((2 * SIDE, 2 * SIDE), dtype=np.bool_)
    grid = np.clip(np.round(2 * np.stack([rows, columns]) - 0.5), 0, 2 * SIDE - 1).astype(np.int64)
    blank[grid[0], grid[1]] = False
    distance = ndimage.distance_transform_edt(blank, sampling=(0.5, 0.5 / stretch))
    quarters = (distance <= radius).reshape(SIDE, 2, SIDE, 2).mean(axis=(1, 3))
    return np.asarray(quarters >= 0.5)
