"""Images that both domains hold: images of the target that a person has labelled."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from scda.models.index import Ids


@dataclass(frozen=True)
class Shared:
    """The images of the source that the target holds, too.

    Attributes:
        rows: Their rows in the source, rising, (S,).
        twins: For each of them a row of the target with the same content, (S,).
        labels: Label of every target image, 0 to K - 1, (M,); -1 where it has none.
    """

    rows: Ids
    twins: Ids
    labels: Ids

    def elsewhere(self, count: int) -> NDArray[np.bool_]:
        """Return which of the source's images the target lacks, (count,)."""
        found = np.ones(count, bool)
        found[self.rows] = False
        return found

    def of_target(self, kept: Ids) -> "Shared | None":
        """Return the same for some rows of the target, rising; None if they share none."""
        number = np.full(len(self.labels), -1)
        number[kept] = np.arange(len(kept))
        stay = number[self.twins] >= 0
        if not stay.any():
            return None
        return Shared(self.rows[stay], number[self.twins[stay]], self.labels[kept])


def shared_images(source: Sequence[str], labels: Ids, target: Sequence[str]) -> Shared | None:
    """Return the images that both domains hold; None if there are none.

    An image that the source has in several classes stays an image of the source.

    Args:
        source: SHA-256 of every source image, (N,).
        labels: Labels of the source, (N,).
        target: SHA-256 of every target image, (M,).
    """
    if set(source).isdisjoint(target):
        return None
    twin_of = {digest: row for row, digest in reversed(list(enumerate(target)))}
    label_of: dict[str, int] = {}
    for digest, label in zip(source, labels.tolist(), strict=True):
        label_of[digest] = label if label_of.get(digest, label) == label else -1
    rows = [row for row, digest in enumerate(source) if digest in twin_of and label_of[digest] >= 0]
    if not rows:
        return None
    return Shared(
        np.array(rows, np.int64),
        np.array([twin_of[source[row]] for row in rows], np.int64),
        np.array([label_of.get(digest, -1) for digest in target], np.int64),
    )
