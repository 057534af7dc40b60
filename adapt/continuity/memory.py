"""memory.npz: the centroids of a model's classes among the features of the frozen backbone.

The features of a model's own head change with every training; those of the backbone stay, and so a
later model can find a class again even if it has none of its images.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Self
from zipfile import BadZipFile

import numpy as np

from scda.adapt.discovery.kmeans import Points
from scda.models.errors import GateError
from scda.models.index import Ids, normalised

# Errors that NumPy raises for a damaged archive.
_DAMAGED = (OSError, EOFError, LookupError, RuntimeError, TypeError, ValueError, BadZipFile)


@dataclass(frozen=True)
class Memory:
    """The centroids of the classes of one model."""

    backbone: str  # ids of the backbone and of its preprocessing; others cannot be compared
    centroids: Points  # (C, D_backbone), in output order, of length 1; zeros without an image

    def similarity(self, other: Self) -> Points:
        """Return the cosine of every pair of centroids, 0 where they cannot be compared."""
        if self.backbone != other.backbone:
            return np.zeros((len(self.centroids), len(other.centroids)), np.float32)
        return np.asarray(self.centroids @ other.centroids.T, np.float32)

    def save(self, path: Path) -> None:
        """Write memory.npz."""
        with path.open("wb") as file:
            np.savez(file, backbone=np.array(self.backbone), centroids=self.centroids)

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
        except _DAMAGED as error:
            raise GateError(f"{name}: damaged: {error}") from None
        is_whole = centroids.ndim == 2 and len(centroids) == num_classes
        if not is_whole or centroids.dtype != np.float32 or not np.isfinite(centroids).all():
            raise GateError(
                f"{name}: damaged: expected a centroid of each of {num_classes} classes"
            )
        return cls(backbone, centroids)


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
    points = normalised(features)
    points = points - points.mean(axis=0)
    sums = np.zeros((num_classes, points.shape[1]), np.float32)
    np.add.at(sums, predicted, points)
    return Memory(backbone, normalised(sums))
