"""The space in which candidates are counted and clustered."""

from dataclasses import dataclass

import numpy as np
from sklearn.decomposition import PCA

from scda.adapt.config import TrainConfig
from scda.adapt.discovery.kmeans import Points
from scda.adapt.discovery.selection import Candidates
from scda.models.index import Ids


@dataclass(frozen=True)
class Space:
    """Candidates as points: what an estimator of k sees."""

    points: Points  # (N, D), T_kn first, then T_im
    known_labels: Ids  # (n,) pseudo-labels of T_kn, 0 to K - 1
    num_known: int  # K
    config: TrainConfig
    surroundings: Points  # (M, D), the whole target: T_kn first, then T_im; or (0, D)

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
) -> Space:
    """Return the space of the candidates.

    Args:
        features: Output of F for the whole target, (M, D_features).
        backbone: Backbone features of the whole target, (M, D_backbone).
        candidates: T_kn and T_im.
        num_known: Number of known classes, K.
        config: Configuration of the run.
        whole: Whether an estimator needs the surroundings of the candidates.
    """
    rows = candidates.rows
    points = cluster_space(features, backbone, rows, config)
    surroundings = points[:0]
    if whole:
        rest = np.setdiff1d(np.arange(len(backbone)), rows)
        everything = np.concatenate([rows, rest])
        surroundings = cluster_space(features, backbone, everything, config)
    return Space(points, candidates.known_labels, num_known, config, surroundings)


def cluster_space(features: Points, backbone: Points, rows: Ids, config: TrainConfig) -> Points:
    """Return rows of the target as points, (len(rows), D).

    `config.cluster_space` chooses them: `features` are F's, which has already pulled new classes
    together; `backbone` are the backbone's; `both` puts them side by side. Points of the backbone
    and of both have length 1, are centred, and are scaled to the same mean square.

    Args:
        features: Output of F for the whole target, (M, D_features).
        backbone: Backbone features of the whole target, (M, D_backbone).
        rows: Rows that become points.
        config: Configuration of the run.
    """
    points = features[rows].astype(np.float32)
    if config.cluster_space == "both":
        points = np.hstack([_balanced(points), _balanced(backbone[rows])])
    if config.cluster_space == "backbone":
        points = _balanced(backbone[rows])
    dimensions = min(config.pca, points.shape[1], len(points) - 1)
    if dimensions and np.ptp(points, axis=0).any():
        points = PCA(dimensions, random_state=config.seed).fit_transform(points)
    return np.ascontiguousarray(points, np.float32)


def _balanced(features: Points) -> Points:
    lengths = np.linalg.norm(features, axis=1, keepdims=True)
    centred = features / np.maximum(lengths, np.finfo(np.float32).tiny)
    centred = centred - centred.mean(axis=0)
    scale = np.sqrt((centred**2).sum(axis=1).mean())
    return np.asarray(centred / max(scale, np.finfo(np.float32).tiny), np.float32)
