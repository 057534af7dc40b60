"""The map of the target: t-SNE of the model's features, computed once and kept as map.csv."""

import csv
import io
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from scda.adapt.discovery.kmeans import Points
from scda.adapt.runs.tables import write_table
from scda.models.errors import GateError
from scda.models.index import Ids

MAX_POINTS = 2_000  # a larger target is sampled: more points are hard to tell apart
_DIMENSIONS = 50  # number of PCA components that t-SNE starts from
_PERPLEXITY = 10.0  # below the size of most classes, which would otherwise shrink to one spot
_FEWEST = 8  # smallest number of images for t-SNE; PCA is used below
_STEPS = 500  # number of iterations


def make_map(features: Points, *, seed: int) -> tuple[Ids, NDArray[np.float32]]:
    """Return the rows of the images on the map, (n,), and their positions, (n, 2), 0 to 1.

    Nearby images are similar to the model; large distances mean little, as always with t-SNE.

    Args:
        features: Features of the whole target, (N, D).
        seed: Random seed of the sample and of t-SNE.

    Source: van der Maaten and Hinton 2008, "Visualizing Data using t-SNE".
    """
    from sklearn.decomposition import PCA
    from sklearn.manifold import TSNE

    rows = np.arange(len(features))
    if len(rows) > MAX_POINTS:
        rows = np.sort(np.random.default_rng(seed).choice(rows, MAX_POINTS, replace=False))
    points = np.asarray(features[rows], np.float32)
    if not np.ptp(points, axis=0).any():
        return rows, np.full((len(rows), 2), 0.5, np.float32)
    dimensions = min(_DIMENSIONS, *points.shape)
    points = PCA(dimensions, random_state=seed).fit_transform(points)
    if len(points) >= _FEWEST and dimensions > 2:
        perplexity = min(_PERPLEXITY, (len(points) - 1) / 3)
        layout = TSNE(perplexity=perplexity, max_iter=_STEPS, init="pca", random_state=seed)
        points = layout.fit_transform(points)
    places = np.zeros((len(points), 2), np.float32)
    places[:, : min(2, points.shape[1])] = points[:, :2]
    return rows, _into_unit_square(places)


def write_map(path: Path, names: list[str], places: NDArray[np.float32]) -> None:
    """Write map.csv: path relative to the target, and position, of each image on the map."""
    rows = ((name, f"{x:.4f}", f"{y:.4f}") for name, (x, y) in zip(names, places, strict=True))
    write_table(path, ("path", "x", "y"), rows)


def read_map(path: Path) -> dict[str, tuple[float, float]]:
    """Return path → position from map.csv; empty if there is no such file.

    Raises:
        GateError: If it is damaged.
    """
    if not path.is_file():
        return {}
    text = path.read_bytes().decode("utf-8", "surrogateescape")
    try:
        rows = list(csv.DictReader(io.StringIO(text, newline="")))
        return {row["path"]: (float(row["x"]), float(row["y"])) for row in rows}
    except (KeyError, TypeError, ValueError) as error:
        raise GateError(f"{path}: damaged: {error!r}; remove it, or train the run again") from None


def _into_unit_square(places: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the positions in the unit square, with one scale for both axes."""
    low, high = places.min(axis=0), places.max(axis=0)
    scale = max(float((high - low).max()), float(np.finfo(np.float32).tiny))
    return np.asarray(0.5 + (places - (low + high) / 2) / scale, np.float32)
