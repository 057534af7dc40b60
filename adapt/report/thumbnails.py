"""Small copies of images for a page: single JPEGs, and one sprite of very small ones."""

import base64
import hashlib
import io
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from PIL import Image, ImageOps

from scda.models.cpus import usable_cpus
from scda.models.decoding.content import read_bytes
from scda.models.decoding.reading import thumbnail
from scda.models.errors import ImageError
from scda.models.images import read_image
from scda.models.limits import LIMITS, ImageLimits

SHEET_PX = 128  # longer side of an image on a contact sheet
_SHEET_QUALITY, _CELL_QUALITY = 75, 55  # JPEG quality
_SPRITE_PIXELS = 4_500_000  # size of the sprite, about 1 MB as JPEG
_CELL_PX = (36, 88)  # smallest and largest side of a cell
NOT_COMPARED: Mapping[str, str] = {}
_MEAN_GREY = (128, 128, 128)


@dataclass(frozen=True)
class Sprite:
    """Square cells in one image, row by row."""

    url: str  # data URL
    cell_px: int
    columns: int
    places: dict[str, int]  # name → number of its cell


@dataclass(frozen=True)
class Thumbnails:
    """The small images of one page."""

    urls: dict[str, str]  # name → data URL
    sprite: Sprite | None
    unreadable: int  # number of files that can no longer be read


def make_thumbnails(
    folder: Path,
    singles: Collection[str],
    cells: Sequence[str],
    *,
    limits: ImageLimits = LIMITS,
    on_progress: Callable[[int, int], None],
    digests: Mapping[str, str] = NOT_COMPARED,
) -> Thumbnails:
    """Return small copies of the named files; each file is read once.

    Args:
        folder: Folder that the names are relative to.
        singles: Names of the single images.
        cells: Names of the images in the sprite.
        limits: The largest image that is read.
        on_progress: Called with the number of finished files and the number of all files.
        digests: Name → SHA-256 of the file; another content counts as unreadable.
    """
    names = list(dict.fromkeys([*singles, *cells]))
    alone, in_sprite, cell_px = set(singles), set(cells), cell_size(len(cells))
    urls: dict[str, str] = {}
    small: dict[str, Image.Image] = {}

    def read(name: str) -> tuple[str | None, Image.Image | None] | None:
        side_px = 2 * SHEET_PX if name in alone else 2 * cell_px
        image = _reduced(folder / name, side_px, limits, digests.get(name))
        if image is None:
            return None
        cell = _square(image, cell_px) if name in in_sprite else None
        return _single(image) if name in alone else None, cell

    unreadable = 0
    with ThreadPoolExecutor(usable_cpus()) as pool:
        for number, (name, made) in enumerate(zip(names, pool.map(read, names), strict=True)):
            on_progress(number + 1, len(names))
            if made is None:
                unreadable += 1
                continue
            url, cell = made
            if url is not None:
                urls[name] = url
            if cell is not None:
                small[name] = cell
    return Thumbnails(urls, _sprite(small, cell_px) if small else None, unreadable)


def cell_size(count: int) -> int:
    """Return the side of a cell in pixels, such that a sprite of `count` cells takes about 1 MB."""
    least, most = _CELL_PX
    return max(least, min(most, math.isqrt(_SPRITE_PIXELS // max(1, count))))


def data_url(jpeg: bytes) -> str:
    """Return a JPEG as a data URL."""
    return "data:image/jpeg;base64," + base64.b64encode(jpeg).decode()


def _reduced(
    path: Path, side_px: int, limits: ImageLimits, digest: str | None
) -> Image.Image | None:
    try:
        data = read_bytes(path, max_bytes=limits.max_bytes)
        if digest and hashlib.sha256(data).hexdigest() != digest:
            return None
        return read_image(data, limits, reading=thumbnail(side_px))
    except ImageError:
        return None


def _single(image: Image.Image) -> str:
    image = image.copy()
    image.thumbnail((SHEET_PX, SHEET_PX), Image.Resampling.BICUBIC)
    return data_url(_jpeg(image, _SHEET_QUALITY))


def _square(image: Image.Image, side_px: int) -> Image.Image:
    return ImageOps.fit(image, (side_px, side_px), Image.Resampling.BICUBIC)


def _sprite(cells: dict[str, Image.Image], cell_px: int) -> Sprite:
    columns = math.ceil(math.sqrt(len(cells)))
    size = (columns * cell_px, math.ceil(len(cells) / columns) * cell_px)
    whole = Image.new("RGB", size, _MEAN_GREY)
    for number, cell in enumerate(cells.values()):
        row, column = divmod(number, columns)
        whole.paste(cell, (column * cell_px, row * cell_px))
    places = {name: number for number, name in enumerate(cells)}
    return Sprite(data_url(_jpeg(whole, _CELL_QUALITY)), cell_px, columns, places)


def _jpeg(image: Image.Image, quality: int) -> bytes:
    file = io.BytesIO()
    image.save(file, "JPEG", quality=quality, optimize=True)
    return file.getvalue()
