"""What sessions answer for many images, read as training reads them."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from scda.adapt.data.image_files import Images
from scda.adapt.discovery.kmeans import Points
from scda.models.cpus import usable_cpus
from scda.models.decoding.forms import Form
from scda.models.errors import ImageError
from scda.models.preprocess import Pixels
from scda.models.session import Session

BATCH = 8  # number of images per call of a model

Progress = Callable[[int, int], None]


def answers(
    sessions: Sequence[Session],
    images: Images,
    form: Form,
    on_progress: Progress = lambda done, total: None,
) -> tuple[list[int], list[tuple[Points, Points]]]:
    """Return the rows of the images that can be read, and each session's answers for them.

    Args:
        sessions: Models with the outputs probabilities (N, C) and features (N, D).
        images: Files; those that vanished or changed are left out.
        form: Preprocessing of the models.
        on_progress: Called with the number of finished files and the number of all files.

    Returns:
        The rows, and for each session probabilities (M, C) and features (M, D) of these rows; no
        answers if there is no row.
    """
    rows: list[int] = []
    parts: list[list[list[Points]]] = [[] for _ in sessions]
    total = len(images.paths)
    with ThreadPoolExecutor(usable_cpus()) as pool:
        for start in range(0, total, BATCH):
            batch = range(start, min(start + BATCH, total))
            read = [(row, one) for row, one in _read(pool, images, batch, form) if one is not None]
            if read:
                pixels = np.stack([one for _, one in read])
                rows += [row for row, _ in read]
                for part, session in zip(parts, sessions, strict=True):
                    part.append(session.run(pixels))
            on_progress(batch.stop, total)
    joined = [[np.concatenate(outputs) for outputs in zip(*part, strict=True)] for part in parts]
    return rows, [(found[0], found[1]) for found in joined if found]


def _read(
    pool: ThreadPoolExecutor, images: Images, rows: Sequence[int], form: Form
) -> Iterator[tuple[int, Pixels | None]]:
    def read(row: int) -> Pixels | None:
        try:
            return images.read(row, form)
        except ImageError:
            return None

    return zip(rows, pool.map(read, rows), strict=True)
