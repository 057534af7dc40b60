"""The most certain images of every class, and what is typical of them."""

import numpy as np

from scda.adapt.discovery.kmeans import Points
from scda.models.index import Ids

_FEWEST = 4  # images that make a class typical


def certain_halves(predicted: Ids, doubt: Points) -> list[Ids]:
    """Return the rows of each large enough class's half with the least doubt, or else all rows.

    Args:
        predicted: Predicted class of every image, (M,).
        doubt: Doubt about it, (M,), in any unit.
    """
    halves = []
    for label in np.unique(predicted):
        members = np.flatnonzero(predicted == label)
        if len(members) >= _FEWEST:
            halves.append(members[np.argsort(doubt[members], kind="stable")][: len(members) // 2])
    return halves or [np.arange(len(predicted))]


def typical(values: Points, certain: list[Ids]) -> float:
    """Return the median over classes of the median of their certain images.

    Args:
        values: (M,).
        certain: As `certain_halves` returns it.
    """
    return float(np.median([np.median(values[half]) for half in certain]))


def best_two(columns: Points) -> tuple[Points, Points]:
    """Return the largest and the second largest number of every row, both (M,)."""
    ordered = np.sort(columns, axis=1)
    return ordered[:, -1], ordered[:, -2]
