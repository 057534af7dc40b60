"""Smaller targets: the same tasks with fewer images, evenly or in classes of unequal size."""

from dataclasses import replace

import numpy as np

from benchmarks.open_set.protocols import Lists
from scda.models.index import Ids

THINNINGS = ("skewed", "even")
_FEWEST = 3  # images of a class
_MOST = 2  # times the median size: the largest class


def thinned(lists: Lists, how: str, seed: int) -> Lists:
    """Return a task with part of its target, in the same order.

    `skewed` keeps of the class in place r, in an order by chance, the r-th part of twice the median
    class, and at least three images (or all that there are). `even` draws as many images in all
    from the whole target.

    Args:
        lists: The images of the task.
        how: One of `THINNINGS`.
        seed: Seed of the draws; both ways of one seed keep equally many images.
    """
    generator = np.random.default_rng(seed)
    truth = np.array(lists.truth)
    kept = _skewed(truth, generator)
    if how == "even":
        kept = np.sort(generator.permutation(len(truth))[: len(kept)])
    return replace(
        lists,
        target=tuple(lists.target[row] for row in kept),
        truth=tuple(lists.truth[row] for row in kept),
    )


def _skewed(truth: Ids, generator: np.random.Generator) -> Ids:
    labels, sizes = np.unique(truth, return_counts=True)
    most = _MOST * float(np.median(sizes))
    places = 1 + generator.permutation(len(labels))
    parts = [
        generator.permutation(np.flatnonzero(truth == label))[: max(_FEWEST, int(most / place))]
        for label, place in zip(labels.tolist(), places.tolist(), strict=True)
    ]
    return np.sort(np.concatenate(parts))
