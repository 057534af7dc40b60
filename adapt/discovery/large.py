"""Large sets of images: from which size on steps are approximate, and work goes block by block.

Up to `LARGE` images every step sees all of them at once. Above, what is fitted (a whitening,
components, k-means) is fitted to evenly spaced images, and neighbours are sought in cells.
"""

from collections.abc import Iterator

import numpy as np

from scda.models.index import Ids

LARGE = 20_000  # images


def evenly_spaced(count: int, most: int = LARGE) -> Ids:
    """Return at most `most` of `count` rows, evenly spaced; all of them where there are fewer."""
    return np.linspace(0, count - 1, min(count, most)).astype(np.int64)


def blocks(count: int) -> Iterator[slice]:
    """Yield slices of `count` rows with at most `LARGE` of them, at least one slice."""
    for start in range(0, max(1, count), LARGE):
        yield slice(start, min(count, start + LARGE))
