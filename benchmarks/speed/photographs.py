"""Photographs as phones make them, enlarged from smaller images."""

import statistics
from collections.abc import Sequence
from pathlib import Path

from PIL import Image

from scda.adapt.data.domain_statistics import evenly
from scda.models.folders import walk
from scda.models.images import read_file

COUNT = 200
PHOTOGRAPHS = "photographs of 12 megapixels"
_PIXELS = 12_000_000
_QUALITY = 92


def photographs_in(folder: Path, images: Sequence[Path]) -> list[Path]:
    """Return the photographs in a folder, which are made of images where it is missing."""
    return list(walk(folder)) if folder.is_dir() else photographs(images, folder, COUNT)


def photographs(paths: Sequence[Path], folder: Path, count: int) -> list[Path]:
    """Write copies of images, enlarged to JPEGs of 12 megapixels, and return their paths."""
    folder.mkdir()
    made = []
    for number, path in enumerate(evenly(paths, count)):
        image = read_file(path)
        scale = (_PIXELS / (image.width * image.height)) ** 0.5
        size = round(image.width * scale), round(image.height * scale)
        made.append(folder / f"{number:04d}.jpg")
        image.resize(size, Image.Resampling.LANCZOS).save(made[-1], quality=_QUALITY)
    mean = statistics.mean(path.stat().st_size for path in made)
    print(f"{len(made)} {PHOTOGRAPHS}, {mean / 1e6:.1f} MB each")
    return made
