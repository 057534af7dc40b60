"""Are two samples of one distribution: permutation tests on counts, exact at every size."""

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

Counts = NDArray[np.int64]
Statistic = Callable[[NDArray[np.float64], NDArray[np.float64]], NDArray[np.float64]]

_FAR = 0.5  # largest share of both samples that counts as their far end
_DIGITS = 9  # decimals by which splits differ
DRAWS = 1999  # permutations; no p-value is below 1 / (DRAWS + 1)


def p_value(reference: Counts, stream: Counts, *statistics: Statistic, seed: int = 0) -> float:
    """Return how often a random split of both samples differs as much as they do, 0 to 1.

    Of several statistics, the one counts by which a split is rarest, for the two samples as for the
    random splits: together they raise no more false alarms than one.

    Args:
        reference: Number of images per cell in the first sample, (B,).
        stream: The same in the second, (B,).
        statistics: How far counts (..., B) of the second sample lie from those of both.
        seed: Random seed of the permutations.

    Source: Westfall and Young 1993, "Resampling-Based Multiple Testing" (the smallest p-value).
    """
    total = reference + stream
    there = total > 0
    total, seen = total[there], stream[there]
    if len(total) < 2 or not seen.sum() or not reference.sum():
        return 1.0
    rng = np.random.default_rng(seed)
    drawn = rng.multivariate_hypergeometric(total, seen.sum(), size=DRAWS, method="marginals")
    shares = total / total.sum()
    splits = np.vstack([seen, drawn]).astype(np.float64)  # the two samples first
    rarest = np.min([_rarity(one(splits, shares)) for one in statistics], axis=0)
    return float((rarest <= rarest[0]).mean())


def _rarity(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the share of splits, (N,), that lie as far as each one does, itself among them."""
    values = values.round(_DIGITS)  # of equal splits, rounding must not decide which is farther
    return 1 - np.searchsorted(np.sort(values), values, side="left") / len(values)


def largest_change(counts: NDArray[np.float64], shares: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return by how much the cell that differs most does, of counts (..., B) and shares (B,).

    It notices a single class that comes or goes among many, which a sum over all classes drowns.
    The square roots give frequent and rare classes the same variance.

    Source: Anscombe 1948, "The Transformation of Poisson, Binomial and Negative-Binomial Data".
    """
    expected = counts.sum(axis=-1, keepdims=True) * shares
    change: NDArray[np.float64] = np.abs(np.sqrt(counts + 3 / 8) - np.sqrt(expected + 3 / 8))
    largest: NDArray[np.float64] = change.max(axis=-1)
    return largest


def rise(counts: NDArray[np.float64], shares: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return how much counts (..., B) of ordered cells lie higher than shares (B,).

    It is the Anderson-Darling distance of the two distributions, of which only the places count
    where the first is the higher one; the tails weigh as much as the middle.

    Source: Scholz and Stephens 1987, "K-Sample Anderson-Darling Tests", for grouped data.
    """
    below = np.cumsum(shares)[:-1]
    found = np.cumsum(counts, axis=-1)[..., :-1] / counts.sum(axis=-1, keepdims=True)
    weights = shares[:-1] / (below * (1 - below))
    distance: NDArray[np.float64] = (np.maximum(below - found, 0) ** 2 * weights).sum(axis=-1)
    return distance


def far_rise(counts: NDArray[np.float64], shares: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return by how much the far end of ordered cells holds more than expected, as in `rise`.

    The far end begins at the cell that tells most, in the upper half. It notices a few images that
    lie far, as those of a new class do, which the whole distribution drowns. The square roots give
    far ends of every size the same variance.
    """
    above = np.cumsum(counts[..., ::-1], axis=-1)[..., :-1]
    share = np.cumsum(shares[::-1])[:-1]
    expected = counts.sum(axis=-1, keepdims=True) * share
    change: NDArray[np.float64] = np.sqrt(above + 3 / 8) - np.sqrt(expected + 3 / 8)
    largest: NDArray[np.float64] = change.max(axis=-1, where=share <= _FAR, initial=0.0)
    return largest


def holm(p_values: Mapping[str, float]) -> dict[str, float]:
    """Return the p-values of several tests, adjusted so that all together err as often as one.

    Source: Holm 1979, "A Simple Sequentially Rejective Multiple Test Procedure".
    """
    adjusted: dict[str, float] = {}
    largest = 0.0
    for rank, name in enumerate(sorted(p_values, key=lambda name: p_values[name])):
        largest = max(largest, (len(p_values) - rank) * p_values[name])
        adjusted[name] = min(1.0, largest)
    return {name: adjusted[name] for name in p_values}
