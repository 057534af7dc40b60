"""memory.npz: the centroids of a model's classes among the features of the frozen backbone.

The features of a model's own head change with every training; those of the backbone stay, and so a
later model can find a class again even if it has none of its images. Classes that vanished are
remembered, too: they may return.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import BinaryIO, Self
from zipfile import BadZipFile

import numpy as np

from scda.adapt.discovery.kmeans import Points
from scda.adapt.discovery.large import blocks
from scda.models.errors import GateError
from scda.models.index import Ids, normalised

_MOST_VANISHED = 1000  # classes, the latest ones

# Errors that NumPy raises for a damaged archive.
_DAMAGED = (OSError, EOFError, LookupError, RuntimeError, TypeError, ValueError, BadZipFile)


@dataclass(frozen=True)
class Memory:
    """The centroids of the classes of one model, and of classes that earlier ones had."""

    backbone: str  # ids of the backbone and of its preprocessing; others cannot be compared
    centroids: Points  # (C, D_backbone), in output order, of length 1; zeros without an image
    vanished: Mapping[str, Points] = field(default_factory=dict)  # class id → (D_backbone,)

    def similarity(self, other: Self) -> Points:
        """Return the cosine of every pair of centroids, 0 where they cannot be compared."""
        if self.backbone != other.backbone:
            return np.zeros((len(self.centroids), len(other.centroids)), np.float32)
        return np.asarray(self.centroids @ other.centroids.T, np.float32)

    def of_vanished(self) -> Self:
        """Return the memory of the classes that vanished, in place of the model's own."""
        rows = [self.centroids[:0], *(row[None] for row in self.vanished.values())]
        return replace(self, centroids=np.concatenate(rows), vanished={})

    def with_vanished(self, vanished: Mapping[str, Points]) -> Self:
        """Return the memory with the latest of the classes that vanished."""
        latest = list(vanished.items())[-_MOST_VANISHED:]
        return replace(self, vanished=dict(latest))

    def save(self, path: Path) -> None:
        """Write memory.npz."""
        with path.open("wb") as file:
            np.savez(
                file,
                backbone=np.array(self.backbone),
                centroids=self.centroids,
                vanished_ids=np.array(list(self.vanished), np.str_),
                vanished=self.of_vanished().centroids,
            )

    @classmethod
    def load(cls, file: BinaryIO, num_classes: int) -> Self:
        """Return what `save` wrote, from an open file.

        Raises:
            GateError: If the file is damaged, or of another number of classes.
        """
        name = Path(file.name).name
        try:
            with np.load(file, allow_pickle=False) as arrays:
                backbone, centroids = str(arrays["backbone"]), arrays["centroids"]
                ids, vanished = [], centroids[:0]
                if "vanished" in arrays:  # not in the first version
                    ids, vanished = arrays["vanished_ids"].tolist(), arrays["vanished"]
        except _DAMAGED as error:
            raise GateError(f"{name}: damaged: {error}") from None
        is_whole = _are_centroids(centroids, num_classes, centroids)
        if not is_whole or not _are_centroids(vanished, len(ids), centroids):
            raise GateError(
                f"{name}: damaged: expected a centroid of each of {num_classes} classes, and of "
                "those that vanished"
            )
        return cls(backbone, centroids, dict(zip(ids, vanished, strict=True)))


def _are_centroids(rows: Points, count: int, like: Points) -> bool:
    is_table = rows.ndim == 2 and rows.shape == (count, like.shape[-1])
    return bool(is_table and rows.dtype == np.float32 and np.isfinite(rows).all())


def remember(backbone: str, features: Points, predicted: Ids, num_classes: int) -> Memory:
    """Return the centroids of classes among their own target images.

    Features are scaled to length 1 and centred, so that what all images of a target share, such as
    its camera, does not make its classes alike.

    Args:
        backbone: Ids of the backbone and of its preprocessing.
        features: Features of the frozen backbone with the statistics of its pre-training,
            (M, D_backbone).
        predicted: Predicted classes, (M,).
        num_classes: Number of classes, C.
    """
    parts = [normalised(features[rows]).sum(axis=0) for rows in blocks(len(features))]
    mean = np.sum(parts, axis=0) / len(features)
    sums = np.zeros((num_classes, features.shape[1]), np.float32)
    for rows in blocks(len(features)):
        np.add.at(sums, predicted[rows], normalised(features[rows]) - mean)
    return Memory(backbone, normalised(sums))
