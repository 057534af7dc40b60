"""What an image looks like at a few pixels, by which copies are told from similar images."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from scda.models.cpus import usable_cpus
from scda.models.decoding.content import read_bytes
from scda.models.decoding.reading import thumbnail
from scda.models.errors import ImageError
from scda.models.images import read_image
from scda.models.index import Features, normalised
from scda.models.limits import LIMITS, ImageLimits

SIDE = 24  # pixels


def read_signatures(
    paths: Sequence[Path],
    limits: ImageLimits = LIMITS,
    on_progress: Callable[[int], None] = lambda done: None,
) -> Features:
    """Return the signature of every image, (N, 3 * SIDE * SIDE).

    Args:
        paths: Image files.
        limits: The largest image that is read.
        on_progress: Called with the number of files done.

    Returns:
        Rows of length 1 with mean 0, or zeros: of an image of one colour, or a lost one, which
        resemble nothing.
    """

    def read(path: Path) -> NDArray[np.float32]:
        try:
            image = read_image(
                read_bytes(path, max_bytes=limits.max_bytes), limits, reading=thumbnail(2 * SIDE)
            )
        except ImageError:
            return np.zeros(3 * SIDE * SIDE, np.float32)
        small = image.resize((SIDE, SIDE), Image.Resampling.BOX)
        return np.asarray(small, np.float32).ravel()

    rows = np.zeros((len(paths), 3 * SIDE * SIDE), np.float32)
    with ThreadPoolExecutor(usable_cpus()) as pool:
        for number, row in enumerate(pool.map(read, paths)):
            rows[number] = row
            on_progress(number + 1)
    return normalised(rows - rows.mean(axis=1, keepdims=True))


def resemblance(
    signatures: Features, first: NDArray[np.int64], second: NDArray[np.int64]
) -> Features:
    """Return how alike the images of each pair of rows are, (n,), up to 1; mirrored ones, too."""
    one, other = signatures[first], signatures[second]
    flipped = other.reshape(-1, SIDE, SIDE, 3)[:, :, ::-1].reshape(other.shape)
    alike = np.maximum((one * other).sum(axis=1), (one * flipped).sum(axis=1))
    return np.asarray(alike, np.float32)
