"""Which values of k a sweep tries: all of a short range, of a long one a grid and what is near.

Both criteria are read off curves that rise to one summit (the share of known images in the right
cluster, and how far the SSE lies below its chord), so a coarse grid finds the neighbourhood.
A k that is high by luck of the seeding, away from the summit, may be passed over.
"""

from collections.abc import Callable, Sequence
from typing import TypeVar

Scores = TypeVar("Scores")

EVERY_UP_TO = 48  # values of k; fewer are all tried
INTERVALS = 16  # of the first grid
FINER = 4  # how much each grid is finer than the one before
REACH = 3  # grid steps tried on either side of a pick; picks that move are followed


def search(
    counts: Sequence[int],
    score: Callable[[int], Scores],
    picks: Callable[[dict[int, Scores]], list[int]],
) -> dict[int, Scores]:
    """Return the scores of the values of k that were tried, k rising; the ends are among them.

    On every grid the neighbours of the picks are tried until no pick moves any more.

    Args:
        counts: The values of k allowed, rising by 1.
        score: What is known of one k; called once for each that is tried.
        picks: The values of k that the scores so far speak for.
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
