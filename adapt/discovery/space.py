"""The space in which candidates are counted and clustered."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

import numpy as np
from sklearn.decomposition import PCA

from scda.adapt.config import TrainConfig
from scda.adapt.discovery.grain import Grain
from scda.adapt.discovery.kmeans import Points
from scda.adapt.discovery.large import LARGE, blocks, evenly_spaced
from scda.adapt.discovery.selection import Candidates
from scda.models.index import Ids

_COMPONENTS = 256  # of more than 20,000 points, unless `config.pca` states them


@dataclass(frozen=True)
class Space:
    """Candidates as points: what an estimator of k sees."""

    points: Points  # (N, D), T_kn first, then T_im
    known_labels: Ids  # (n,) pseudo-labels of T_kn, 0 to K - 1
    num_known: int  # K
    config: TrainConfig
    surroundings: Points  # (M, D), the whole target: T_kn first, then T_im; or (0, D)
    grain: Grain | None = None  # how fine communities are; None: as T_kn says

    @property
    def implicit(self) -> Points:
        """Return the points of T_im, (N - n, D)."""
        return self.points[len(self.known_labels) :]


def space_of(
    features: Points,
    backbone: Points,
    candidates: Candidates,
    *,
    num_known: int,
    config: TrainConfig,
    whole: bool,
    grain: Grain | None = None,
) -> Space:
    """Return the space of the candidates.

    Args:
        features: Output of F for the whole target, (M, D_features).
        backbone: Backbone features of the whole target, (M, D_backbone).
        candidates: T_kn and T_im.
        num_known: Number of known classes, K.
        config: Configuration of the run.
        whole: Whether an estimator needs the surroundings of the candidates.
        grain: How fine communities are, where classes of the source touch.
    """
    rows = candidates.rows
    points = cluster_space(features, backbone, rows, config)
    surroundings = points[:0]
    if whole:
        rest = np.setdiff1d(np.arange(len(backbone)), rows)
        everything = np.concatenate([rows, rest])
        surroundings = cluster_space(features, backbone, everything, config)
    return Space(points, candidates.known_labels, num_known, config, surroundings, grain)


def cluster_space(features: Points, backbone: Points, rows: Ids, config: TrainConfig) -> Points:
    """Return rows of the target as points, (len(rows), D).

    `config.cluster_space` chooses them: `features` are F's, which has already pulled new classes
    together; `backbone` are the backbone's; `both` puts them side by side. Points of the backbone
    and of both have length 1, are centred, and are scaled to the same mean square. More than 20,000
    points are given by their 256 principal components, all fitted to evenly spaced ones.

    Args:
        features: Output of F for the whole target, (M, D_features).
        backbone: Backbone features of the whole target, (M, D_backbone).
        rows: Rows that become points.
        config: Configuration of the run.
    """
    sample = rows[evenly_spaced(len(rows))]
    view = _view(features, backbone, sample, config)
    points = view(sample)
    wanted = config.pca or (_COMPONENTS if len(rows) > LARGE else 0)
    dimensions = min(wanted, points.shape[1], len(rows) - 1)
    reduced = dimensions and np.ptp(points, axis=0).any()
    if len(sample) == len(rows):
        if reduced:
            points = PCA(dimensions, random_state=config.seed).fit_transform(points)
        return np.ascontiguousarray(points, np.float32)
    if not reduced:
        return np.concatenate([view(rows[part]) for part in blocks(len(rows))])
    pca = PCA(dimensions, svd_solver="covariance_eigh").fit(points)
    mapped = np.empty((len(rows), dimensions), np.float32)
    for part in blocks(len(rows)):
        mapped[part] = pca.transform(view(rows[part]))
    return mapped


def _view(
    features: Points, backbone: Points, sample: Ids, config: TrainConfig
) -> Callable[[Ids], Points]:
    """Return the function from rows to points, fitted to the rows of a sample."""
    if config.cluster_space == "features":
        return lambda rows: np.ascontiguousarray(features[rows], np.float32)
    sides = (features, backbone) if config.cluster_space == "both" else (backbone,)
    scales = [(side, _Balance.of(side[sample])) for side in sides]
    return lambda rows: np.hstack([balance(side[rows]) for side, balance in scales])


@dataclass(frozen=True)
class _Balance:
    """Maps features to length 1, centred and of mean square 1."""

    mean: Points  # (D,)
    scale: np.float32

    @classmethod
    def of(cls, features: Points) -> Self:
        units = _units(features)
        mean = units.mean(axis=0)
        scale = np.sqrt(((units - mean) ** 2).sum(axis=1).mean())
        return cls(mean, max(scale, np.finfo(np.float32).tiny))

    def __call__(self, features: Points) -> Points:
        return np.asarray((_units(features) - self.mean) / self.scale, np.float32)


def _units(features: Points) -> Points:
    lengths = np.linalg.norm(features, axis=1, keepdims=True)
    return np.asarray(features / np.maximum(lengths, np.finfo(np.float32).tiny))
