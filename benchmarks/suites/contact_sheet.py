"""A contact sheet: rows of small images with a title above each row and a caption below each."""

import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont, ImageOps

from scda.models.images import read_file

IMAGES_PER_ROW = 9
_IMAGE_PX, _GAP_PX, _MARGIN_PX = 84, 8, 12
_TITLE_PX, _CAPTION_PX = 15, 11  # heights of the two fonts
_TITLE_BAND_PX, _LINE_PX = 26, 13
_GROUND, _INK, _SOFT = "#ffffff", "#1d2126", "#646d77"
_QUALITIES = (85, 78, 70, 60, 50, 40, 30)  # JPEG; the first that is small enough


@dataclass(frozen=True)
class Captioned:
    """One image of a sheet."""

    path: Path
    caption: tuple[str, ...]  # lines below the image


@dataclass(frozen=True)
class Row:
    """One row of a sheet."""

    title: str
    images: tuple[Captioned, ...]


def contact_sheet(rows: Sequence[Row], max_bytes: int) -> bytes:
    """Return a JPEG of all rows, in the best quality that is small enough, or else the lowest.

    Args:
        rows: Rows from top to bottom; images beyond `IMAGES_PER_ROW` are left out.
        max_bytes: Largest size of the file.
    """
    sheet = _draw(rows)
    for quality in _QUALITIES:
        file = io.BytesIO()
        sheet.save(file, "JPEG", quality=quality, optimize=True)
        if file.tell() <= max_bytes:
            break
    return file.getvalue()


def _draw(rows: Sequence[Row]) -> Image.Image:
    width = 2 * _MARGIN_PX + IMAGES_PER_ROW * (_IMAGE_PX + _GAP_PX) - _GAP_PX
    height = 2 * _MARGIN_PX + sum(map(_height, rows))
    sheet = Image.new("RGB", (width, height), _GROUND)
    top = _MARGIN_PX
    for row in rows:
        _draw_row(sheet, row, top)
        top += _height(row)
    return sheet


def _height(row: Row) -> int:
    if not row.images:
        return _TITLE_BAND_PX
    lines = max(len(image.caption) for image in row.images)
    return _TITLE_BAND_PX + _IMAGE_PX + lines * _LINE_PX + 2 * _GAP_PX


def _draw_row(sheet: Image.Image, row: Row, top: int) -> None:
    pen = ImageDraw.Draw(sheet)
    pen.text((_MARGIN_PX, top), row.title, _INK, ImageFont.load_default(_TITLE_PX))
    font = ImageFont.load_default(_CAPTION_PX)
    for number, shown in enumerate(row.images[:IMAGES_PER_ROW]):
        left, at = _MARGIN_PX + number * (_IMAGE_PX + _GAP_PX), top + _TITLE_BAND_PX
        sheet.paste(ImageOps.fit(read_file(shown.path), (_IMAGE_PX, _IMAGE_PX)), (left, at))
        for line, text in enumerate(shown.caption):
            place = left, at + _IMAGE_PX + _GAP_PX // 2 + line * _LINE_PX
            pen.text(place, _shortened(text, font), _SOFT, font)


def _shortened(text: str, font: ImageFont.ImageFont | ImageFont.FreeTypeFont) -> str:
    """Return the text cut to the width of an image."""
    if font.getlength(text) <= _IMAGE_PX:
        return text
    while text and font.getlength(f"{text}…") > _IMAGE_PX:
        text = text[:-1]
    return f"{text}…"
