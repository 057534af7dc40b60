"""Coarse-to-fine search over k: a short range is tried in full, a long one on ever finer grids.

Both criteria are the maxima of curves with one peak (the clustering accuracy of known images, and
the distance of the SSE below its chord), so a coarse grid finds the region of the peak. A value
away from the peak that is high only because of its random seeds may be missed.
"""

from collections.abc import Callable, Sequence
from typing import TypeVar

Scores = TypeVar("Scores")

EVERY_UP_TO = 48  # largest number of values of k that are all tried
INTERVALS = 16  # number of intervals of the first grid
FINER = 4  # factor between the steps of two successive grids
REACH = 3  # number of grid steps tried on either side of a pick; moving picks are followed


def search(
    counts: Sequence[int],
    score: Callable[[int], Scores],
    picks: Callable[[dict[int, Scores]], list[int]],
) -> dict[int, Scores]:
    """Return the scores of the values of k that were tried, in rising order, both ends included.

    On every grid, the neighbours of the picks are tried until the picks no longer move.

    Args:
        counts: Allowed values of k, rising by 1.
        score: Returns the scores of one k; called once per value that is tried.
        picks: Returns the values of k that are best by the scores so far.
    """
    step = 1 if len(counts) <= EVERY_UP_TO else -(-len(counts) // INTERVALS)
    tried = {k: score(k) for k in (*counts[:-1:step], counts[-1])}
    while step > 1:
        step = max(1, step // FINER)
        while missing := _neighbours(picks(tried), step, counts) - tried.keys():
            tried |= {k: score(k) for k in sorted(missing)}
            tried = dict(sorted(tried.items()))
    return tried


def _neighbours(picks: list[int], step: int, counts: Sequence[int]) -> set[int]:
    near = {pick + step * side for pick in picks for side in range(-REACH, REACH + 1)}
    return {k for k in near if counts[0] <= k <= counts[-1]}
