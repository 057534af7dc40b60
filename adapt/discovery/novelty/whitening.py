"""A space in which images of one class lie closer together than in the backbone's features.

A backbone spends most of its variance on differences between images of one class: pose, light,
style. The source's classes show this variance, and so do the target's communities, without a
label. Whitening by it leaves the differences between classes.
"""

from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array

from scda.adapt.discovery.communities import coarsest_of_at_least, shared_neighbours, thinned_rows
from scda.adapt.discovery.kmeans import Points
from scda.adapt.discovery.large import blocks, evenly_spaced
from scda.adapt.runtime.threads import in_parallel
from scda.models.index import Ids, normalised

_COMPONENTS = 256
_SHRINKAGE = 0.3  # of the within-class covariance towards its mean eigenvalue
_PER_CLASS = 3  # communities of the target for each known class, at least
_PASSES = 2  # the second finds its communities in the space of the first
_SMALLEST = 1e-12


@dataclass(frozen=True)
class Whitening:
    """Map of backbone features: (x / |x| - mean of its domain) @ projection, of length 1."""

    source_mean: Points  # (D_backbone,)
    target_mean: Points  # (D_backbone,)
    projection: Points  # (D_backbone, D)

    def source(self, features: Points) -> Points:
        """Return the points, (N, D), of backbone features of the source, (N, D_backbone)."""
        return self._mapped(features, self.source_mean)

    def target(self, features: Points) -> Points:
        """Return the points, (M, D), of backbone features of the target, (M, D_backbone)."""
        return self._mapped(features, self.target_mean)

    def _mapped(self, features: Points, mean: Points) -> Points:
        points = np.empty((len(features), self.projection.shape[1]), np.float32)

        def write(rows: slice) -> None:
            points[rows] = (normalised(features[rows]) - mean) @ self.projection

        in_parallel(write, blocks(len(features)))
        return normalised(points)


def fit_whitening(source: Points, labels: Ids, target: Points) -> Whitening:
    """Return the whitening of a source and a target by their variance within classes.

    Of more than 20,000 images of a domain, evenly spaced ones stand for all.

    Args:
        source: Backbone features, (N, D_backbone).
        labels: Labels of the source, (N,), 0 to K - 1.
        target: Backbone features, (M, D_backbone).

    Source: Hatch et al. 2006, "Within-class covariance normalization for SVM-based speaker
    recognition"; the target's communities take the place of its classes.
    """
    kept, of_target = evenly_spaced(len(source)), evenly_spaced(len(target))
    num_known, labels = int(labels.max()) + 1, labels[kept]
    points, others = normalised(source[kept]), normalised(target[of_target])
    source_mean, target_mean = points.mean(axis=0), others.mean(axis=0)
    axes = principal_axes(points - source_mean, others - target_mean, _COMPONENTS)
    points, others = (points - source_mean) @ axes, _thinned((others - target_mean) @ axes)
    of_source = _within(points, labels)
    graph = shared_neighbours(_thinned(normalised(target[of_target])))
    for _ in range(_PASSES):
        groups = coarsest_of_at_least(graph, _PER_CLASS * num_known)
        within = (of_source + _within(others, groups)) / 2
        inverse = _inverse_root(np.asarray(within, np.float32))
        graph = shared_neighbours(normalised(others @ inverse))
    return Whitening(source_mean, target_mean, np.ascontiguousarray(axes @ inverse, np.float32))


def _thinned(points: Points) -> Points:
    return points[thinned_rows(len(points))]


def principal_axes(source: Points, target: Points, count: int) -> Points:
    """Return the axes along which both domains vary most; each domain counts as much.

    Args:
        source: Points of the source about their mean, (N, D).
        target: Points of the target about their mean, (M, D).
        count: Number of axes.

    Returns:
        Orthonormal columns, (D, min(count, D)), the one with the most variance first.
    """
    scatter = source.T @ source / len(source) + target.T @ target / len(target)
    _, axes = np.linalg.eigh(scatter)
    axes = axes[:, ::-1][:, :count]
    largest = axes[np.abs(axes).argmax(axis=0), np.arange(axes.shape[1])]
    return np.ascontiguousarray(axes * np.sign(largest), np.float32)  # the same sign everywhere


def _within(points: Points, groups: Ids) -> Points:
    """Return the covariance, (D, D), of points about the mean of their group.

    Args:
        points: (N, D).
        groups: Group of each point, (N,), 0 and above.
    """
    counts = np.bincount(groups)
    members = csr_array((np.ones(len(groups)), (groups, np.arange(len(groups)))))
    means = (members @ points) / np.maximum(counts, 1)[:, None]
    apart = points - means[groups]
    freedom = max(1, len(points) - np.count_nonzero(counts))
    return np.asarray(apart.T @ apart / freedom, np.float32)


def _inverse_root(covariance: Points) -> Points:
    values, axes = np.linalg.eigh(covariance)
    values = np.maximum(values, 0)
    scale = np.sqrt(np.maximum(values + _SHRINKAGE * values.mean(), _SMALLEST))
    return np.asarray((axes / scale) @ axes.T, np.float32)
