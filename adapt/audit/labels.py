"""Labels that look wrong: what all other images say about the class of each image."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from scda.models.index import Features, Ids, normalised

# Of the mean squared singular value. Values from 0.1 to 1 find within two points as many
# wrong labels (benchmarks/results/audit.md).
_RIDGE = 0.3

Scores = NDArray[np.float64]


@dataclass(frozen=True)
class Agreement:
    """How far the label of each image agrees with all others.

    Attributes:
        scores: Leave-one-out scores of the classes, (N, K), around 0 to 1.
        labels: Labels, (N,).
    """

    scores: Scores
    labels: Ids

    @cached_property
    def own(self) -> Scores:
        """The score of the label of each image, (N,)."""
        return self.scores[np.arange(len(self.labels)), self.labels]

    @cached_property
    def suggested(self) -> Ids:
        """The class besides its label with the largest score of each image, (N,)."""
        others = self.scores.copy()
        others[np.arange(len(self.labels)), self.labels] = -np.inf
        return np.asarray(others.argmax(axis=1), np.int64)

    @cached_property
    def margin(self) -> Scores:
        """The score of the label minus that of the suggested class; low where it looks wrong."""
        return self.own - self.scores[np.arange(len(self.labels)), self.suggested]

    @cached_property
    def order(self) -> Ids:
        """All rows, those whose label looks most wrong first."""
        return np.asarray(np.argsort(self.margin, kind="stable"), np.int64)

    def wrong(self) -> Ids:
        """Return the rows whose label is confidently another, most wrong first.

        The suggested class has a larger score than the label, and at least that which images of
        this class have for it on average.

        Source: Northcutt et al. 2021, "Confident Learning", https://arxiv.org/abs/1911.00068, the
        off-diagonal of the confident joint.
        """
        count = self.scores.shape[1]
        sums = np.bincount(self.labels, self.own, minlength=count)
        usual = sums / np.maximum(np.bincount(self.labels, minlength=count), 1)
        of_suggested = self.scores[np.arange(len(self.labels)), self.suggested]
        is_wrong = (self.margin < 0) & (of_suggested >= usual[self.suggested])
        return self.order[is_wrong[self.order]]


def agreement(features: Features, labels: Ids) -> Agreement:
    """Return what a ridge regression on all other images says about each one.

    Leaving out one image has a closed form, so that all N heads cost as much as one.

    Args:
        features: Features of the backbone, (N, D).
        labels: Labels, (N,), 0 to K - 1; every class has an image.

    Source: Allen 1974, "The Relationship Between Variable Selection and Data Augmentation and a
    Method for Prediction" (PRESS): residual / (1 - leverage).
    """
    points = normalised(features).astype(np.float64)
    points -= points.mean(axis=0)
    one_hot = np.eye(int(labels.max()) + 1)[labels]
    shares = one_hot.mean(axis=0)
    targets = one_hot - shares
    fitted, leverage = _fit(points, targets)
    leverage = np.minimum(leverage + 1 / len(points), 1 - 1e-9)[:, None]  # 1/N is the intercept's
    return Agreement((fitted - leverage * targets) / (1 - leverage) + shares, labels)


def _fit(points: Scores, targets: Scores) -> tuple[Scores, Scores]:
    """Return the fitted targets, (N, K), and the leverages, (N,), by the smaller system."""
    count, width = points.shape
    penalty = _RIDGE * max(float((points**2).sum()), 1e-12) / min(count, width)
    if count > width:
        inverse = np.linalg.inv(points.T @ points + penalty * np.eye(width))
        projected = points @ inverse
        return projected @ (points.T @ targets), (projected * points).sum(axis=1)
    gram = points @ points.T
    hat = np.linalg.solve(gram + penalty * np.eye(count), gram)
    return hat @ targets, np.asarray(np.diag(hat))
