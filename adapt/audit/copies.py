"""Groups of images that are the same picture: equal files, and copies saved anew."""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from scda.models.index import Features, Ids, build_index, nearest

_CANDIDATES = 10  # images that each one is compared with, by the backbone's features
_LEAST_COSINE = 0.7  # of candidates; a copy at half the size has 0.72 or more
SAME = 0.97  # resemblance of signatures (benchmarks/results/audit.md)
_ROWS = 4_096  # compared at once, which bounds the memory

Resemblance = Callable[[Ids, Ids], Features]


def copy_groups(
    features: Features,
    digests: Sequence[str],
    resemblance: Resemblance,
    *,
    most: int | None = None,
) -> NDArray[np.int64]:
    """Return the number of the group of each image, (N,); an image without copies is alone.

    Args:
        features: Features of the backbone, (N, D).
        digests: SHA-256 of each file; equal ones are one group.
        resemblance: Returns how alike the images of two arrays of rows are, (n,), up to 1.
        most: Largest number of pairs to compare, those with the most similar features; None
            compares all. With 0 only equal files are copies.
    """
    _, first, of_file = np.unique(np.asarray(digests), return_index=True, return_inverse=True)
    distinct = np.sort(first)
    one, other = _pairs(features, distinct, most) if most != 0 else (distinct[:0], distinct[:0])
    same = np.concatenate(
        [resemblance(one[at : at + _ROWS], other[at : at + _ROWS]) >= SAME for at in _starts(one)]
        or [np.empty(0, bool)]
    )
    ends = np.concatenate([one[same], np.arange(len(of_file))])
    others = np.concatenate([other[same], first[of_file]])
    graph = coo_array((np.ones(len(ends)), (ends, others)), (len(of_file), len(of_file)))
    return np.asarray(connected_components(graph, directed=False)[1], np.int64)


def members(groups: NDArray[np.int64]) -> list[Ids]:
    """Return the rows of every group of two or more images, in the order of the first rows."""
    order = np.argsort(groups, kind="stable")
    parts = np.split(order, np.flatnonzero(np.diff(groups[order])) + 1)
    return sorted((part for part in parts if len(part) > 1), key=lambda part: int(part[0]))


def _pairs(features: Features, rows: Ids, most: int | None) -> tuple[Ids, Ids]:
    """Return the rows of pairs that may be copies, the most similar ones first."""
    points = features[rows]
    distances, found = nearest(build_index(points), points, _CANDIDATES + 1)
    near = (distances <= 1 - _LEAST_COSINE) & (found != np.arange(len(rows))[:, None])
    one, other = np.nonzero(near)[0], found[near]
    # Each pair once, where both images are among the nearest of each other.
    ends = np.stack([np.minimum(one, other), np.maximum(one, other)])
    (one, other), places = np.unique(ends, axis=1, return_index=True)
    order = np.argsort(distances[near][places], kind="stable")[:most]
    return rows[one[order]], rows[other[order]]


def _starts(rows: Ids) -> range:
    return range(0, len(rows), _ROWS)
