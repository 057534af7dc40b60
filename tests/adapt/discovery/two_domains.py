"""Made-up features of a source and a target with classes that the source lacks."""

import numpy as np

from scda.adapt.discovery.kmeans import Points
from scda.models.index import Ids

WIDTH = 24


def groups(classes: list[int], each: int, *, shift: float, seed: int) -> tuple[Points, Ids]:
    """Return images around one corner per class, with a shift of the whole domain."""
    rng = np.random.default_rng(seed)
    labels = np.repeat(classes, each)
    points = 4 * np.eye(WIDTH)[labels] + rng.normal(0, 0.5, (len(labels), WIDTH)) + shift
    return points.astype(np.float32), labels.astype(np.int64)
