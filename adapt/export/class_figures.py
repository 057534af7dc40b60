"""What a model answers for its target, and what follows for its classes: centroids and radii."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from scda.adapt.discovery.kmeans import Points
from scda.models.bundle import OUTLIER_QUANTILE
from scda.models.files import printable
from scda.models.index import Ids, normalised
from scda.models.trust import Calibration, ClassTrust

RADII = {"q50": 0.5, "q90": 0.9, "q99": 0.99}  # quantiles of the distance to the centroid


@dataclass(frozen=True, kw_only=True)
class ClassFigures:
    """The answers of a model for its target, and its classes in output order."""

    class_names: list[str]  # names of the known classes
    probabilities: Points  # (M, C), target
    features: Points  # (M, D), target
    centroids: Points  # (C, D), rows of length 1
    members: list[tuple[str, Ids]]  # for each class: `target` or `source`, and rows
    distances: list[Points]  # for each class: distances of its members to the centroid, 1 - cosine
    trust: list[ClassTrust]  # for each discovered class; empty in an older bundle
    calibration: Calibration | None  # None in an older bundle
    class_ids: list[str]  # in output order

    @property
    def predicted(self) -> Ids:
        """The output index of every target image, (M,)."""
        return np.asarray(self.probabilities.argmax(axis=1), np.int64)

    @property
    def target_distances(self) -> Points:
        """The distance of every target image to every centroid, (M, C), 1 - cosine."""
        return self.distances_of(self.features)

    @property
    def outliers(self) -> NDArray[np.bool_]:
        """Whether a target image is farther from every class than 99% of its images, (M,)."""
        return self.are_outliers(self.target_distances)

    def distances_of(self, features: Points) -> Points:
        """Return the distances of features (N, D) to every centroid, (N, C), 1 - cosine."""
        cosines = normalised(features) @ self.centroids.T
        return np.asarray(np.clip(1 - cosines, 0, 2), np.float32)

    def are_outliers(self, distances: Points) -> NDArray[np.bool_]:
        """Return which images with these distances (N, C) are outliers, (N,)."""
        radii = [np.quantile(of_class, RADII[OUTLIER_QUANTILE]) for of_class in self.distances]
        return np.asarray((distances > np.array(radii)).all(axis=1))

    @property
    def labels(self) -> list[str]:
        """The names of the classes in output order."""
        known = [printable(name) for name in self.class_names]
        return known + self.class_ids[len(known) :]

    def with_ids(self, class_ids: list[str]) -> Self:
        """Return the model with other ids of its classes, in output order."""
        new = dict(zip(self.class_ids, class_ids, strict=True))
        calibration = self.calibration and self.calibration.with_ids(new)
        return replace(self, class_ids=class_ids, calibration=calibration)


def spread(members: Sequence[Points]) -> tuple[Points, list[Points]]:
    """Return the centroids of classes, (C, D), of length 1, and their members' distances to them.

    Args:
        members: For each class, the features of the images that stand for it, (n, D).
    """
    directions = [normalised(features) for features in members]
    centroids = normalised(np.stack([rows.mean(axis=0) for rows in directions]))
    distances = [
        np.clip(1 - rows @ centroid, 0, 2)
        for rows, centroid in zip(directions, centroids, strict=True)
    ]
    return centroids, distances
