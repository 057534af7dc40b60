"""A made-up mixture of classes that is harder than round clusters, of any size, in features alone.

Classes come in threes whose images touch. Their sizes follow a power law. What differs within a
class is mostly common to all classes, as pose and light are, and has heavy tails. The target
differs from the source. Rows are made in blocks, so that memory does not grow with their number.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

CLASSES, KNOWN = 150, 50
WIDTH = 1280  # of the features
_POWER = 0.7  # size of a class by its rank: the largest is 33 times the smallest
_LATENT = 96  # dimensions in which classes differ
_GROUP = 3  # classes that touch
_NEIGHBOUR = 0.45  # distance of touching classes, relative to others
_WITHIN = 0.7  # spread within a class, relative to that of the groups' centres
_BETWEEN = 0.1  # share of images on the way to a touching class, up to the middle
_TAILS = 6.0  # degrees of freedom of Student's t; normal would be infinite
_SHIFT = 0.3  # of the target, relative to the spread of the groups' centres
_NOISE = 0.2  # in every feature
_BLOCK = 10_000

Rows = NDArray[np.float32]


@dataclass(frozen=True)
class Mixture:
    """Classes, and what they look like in features.

    Attributes:
        labels: Class of every target image, (M,); the first KNOWN are those of the source.
    """

    labels: NDArray[np.int64]
    _centres: Rows  # (CLASSES, _LATENT)
    _touching: NDArray[np.int64]  # (CLASSES, _GROUP - 1), classes that touch each one
    _spread: Rows  # (_LATENT, _LATENT)
    _shift: Rows  # (_LATENT,)
    _view: Rows  # (_LATENT, WIDTH)
    _seed: int

    @property
    def num_new(self) -> int:
        """The number of new classes with at least three images."""
        sizes = np.bincount(self.labels, minlength=CLASSES)[KNOWN:]
        return int((sizes >= 3).sum())

    def target(self) -> Iterator[Rows]:
        """Yield the features of the target in blocks, (at most 10,000, WIDTH)."""
        for start in range(0, len(self.labels), _BLOCK):
            labels = self.labels[start : start + _BLOCK]
            yield self._features(labels, self._shift, np.random.default_rng((self._seed, 1, start)))

    def source(self, labels: NDArray[np.int64]) -> Rows:
        """Return the features of source images of these classes, (len(labels), WIDTH)."""
        return self._features(labels, 0 * self._shift, np.random.default_rng((self._seed, 2)))

    def _features(self, labels: NDArray[np.int64], shift: Rows, rng: np.random.Generator) -> Rows:
        own, size = self._centres[labels], len(labels)
        touching = self._touching[labels, rng.integers(_GROUP - 1, size=size)]
        way = np.where(rng.random(size) < _BETWEEN, rng.uniform(0, 0.5, size), 0)[:, None]
        heavy = np.sqrt(_TAILS / rng.chisquare(_TAILS, size))[:, None]
        places = own + way * (self._centres[touching] - own) + shift
        places += heavy * rng.standard_normal((size, _LATENT)) @ self._spread
        seen = places.astype(np.float32) @ self._view
        seen += _NOISE * rng.standard_normal((size, WIDTH), np.float32)
        return np.asarray(np.maximum(seen, 0), np.float32)  # as after a last layer with ReLU


def mixture(images: int, *, seed: int) -> Mixture:
    """Return the mixture of a target.

    Args:
        images: Number of target images, M.
        seed: Random seed of the classes and of all images.
    """
    rng = np.random.default_rng((seed, 0))
    groups = rng.permutation(CLASSES).reshape(-1, _GROUP)  # of known classes, of new, and of both
    centres = rng.normal(size=(CLASSES, _LATENT)) * _NEIGHBOUR / np.sqrt(2)
    touching = np.empty((CLASSES, _GROUP - 1), np.int64)
    for group in groups:
        centres[group] += rng.normal(size=_LATENT)
        touching[group] = [[other for other in group if other != one] for one in group]
    turned, _ = np.linalg.qr(rng.normal(size=(_LATENT, _LATENT)))
    falling = np.arange(1, _LATENT + 1) ** -0.5
    spread = _WITHIN * falling[:, None] / np.sqrt((falling**2).mean()) * turned
    shares = np.arange(1, CLASSES + 1) ** -_POWER
    sizes = np.maximum(2, np.round(images * shares / shares.sum()))
    # Known and new classes, and classes that touch, are of all sizes.
    of_size = rng.permutation(np.repeat(rng.permutation(CLASSES), sizes.astype(np.int64)))
    labels = rng.choice(of_size, images) if len(of_size) < images else of_size[:images]
    return Mixture(
        labels,
        centres.astype(np.float32),
        touching,
        spread.astype(np.float32),
        (_SHIFT * rng.normal(size=_LATENT)).astype(np.float32),
        (rng.normal(size=(_LATENT, WIDTH)) / np.sqrt(_LATENT)).astype(np.float32),
        seed,
    )
