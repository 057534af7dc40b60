"""Counts of label pairs, and the one-to-one match of labels that shares the most images."""

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from scda.models.index import Ids


def contingency(rows: Ids, columns: Ids, shape: tuple[int, int] | None = None) -> Ids:
    """Return the number of images with each pair of labels.

    scikit-learn's `contingency_matrix` drops labels without an image, so that its rows and columns
    are no longer the labels themselves; here they are.

    Args:
        rows: Labels of one kind, (N,), 0 and above.
        columns: Labels of the other kind, (N,), 0 and above.
        shape: Number of labels of each kind; by default, one more than the largest label.
    """
    table = np.zeros(shape or (rows.max() + 1, columns.max() + 1), np.int64)
    np.add.at(table, (rows, columns), 1)
    return table


def match(table: NDArray[np.int64] | NDArray[np.float64]) -> dict[int, int]:
    """Return row to column, one to one, so that the sum of the matched cells is largest.

    Args:
        table: Counts, or other weights, (R, C); the smaller side is matched whole.

    Source: Kuhn 1955, "The Hungarian method for the assignment problem".
    """
    rows, columns = linear_sum_assignment(table, maximize=True)
    return dict(zip(rows.tolist(), columns.tolist(), strict=True))


def matched_images(clusters: Ids, labels: Ids) -> int:
    """Return how many images have the label that their cluster is matched to."""
    table = contingency(clusters, labels)
    return sum(int(table[pair]) for pair in match(table).items())


def same_class(first: Ids, second: Ids, num_known: int) -> NDArray[np.bool_]:
    """Return which images two labellings put into the same class, (N,).

    A known class is the same one in both. Discovered classes are matched one to one, so that the
    most images are in the same class.

    Args:
        first: Labels of one kind, (N,); K and above are discovered or implicit classes.
        second: Labels of the other kind, (N,).
        num_known: Number of known classes, K.
    """
    same: NDArray[np.bool_] = (first == second) & (first < num_known)
    found = (first >= num_known) & (second >= num_known)
    if found.any():
        rows, columns = first[found] - num_known, second[found] - num_known
        pairs = match(contingency(rows, columns))
        same[found] = np.array([pairs.get(row, -1) for row in rows.tolist()]) == columns
    return same


def clustering_accuracy(clusters: Ids, labels: Ids) -> float:
    """Return the share of images whose cluster is matched to their label, 0 to 1.

    Clusters that are left over count as wrong.

    Source: SCDA, Eq. 8.
    """
    return matched_images(clusters, labels) / len(labels) if len(labels) else 0.0
