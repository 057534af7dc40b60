"""What the model answers for the images of its own target: the figures to compare a stream with."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from scda.models.fields import check_names, count, number, optional_table, table

# Between the parts of a distribution: those of the middle have equally many images if no two are
# alike, those of both ends fewer, since a few images that are unlike the others lie there.
_CUTS = (0.01, 0.025, *(part / 20 for part in range(1, 20)), 0.975, 0.99)


@dataclass(frozen=True, kw_only=True)
class Distribution:
    """How many images have a value up to each edge: one part more than edges, the last open."""

    edges: tuple[float, ...]  # rising; a value on an edge counts to the part above it
    counts: tuple[int, ...]

    @classmethod
    def of(cls, values: ArrayLike) -> "Distribution":
        """Return the distribution of values, (N,), in parts of 5 of 100 images and smaller ends."""
        found = np.asarray(values, np.float64)
        edges = tuple(np.unique(np.round(np.quantile(found, _CUTS), 6)).tolist())
        empty = cls(edges=edges, counts=(0,) * (len(edges) + 1))
        return cls(edges=edges, counts=tuple(empty.count(found).tolist()))

    def count(self, values: ArrayLike) -> NDArray[np.int64]:
        """Return how many values, (N,), lie in each part."""
        parts = np.searchsorted(self.edges, np.asarray(values, np.float64), side="right")
        return np.bincount(parts, minlength=len(self.counts))

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> "Distribution":
        """Return what `dataclasses.asdict` gave.

        Raises:
            TypeError: If a field is missing, unknown or not a list of numbers.
            ValueError: If the edges do not rise, or a part lacks its count.
        """
        check_names(fields, {"edges", "counts"})
        edges, counts = (_listed(fields, name) for name in ("edges", "counts"))
        found = cls(
            edges=tuple(number(edges, name) for name in edges),
            counts=tuple(count(counts, name) for name in counts),
        )
        rising = all(low < high for low, high in zip(found.edges, found.edges[1:], strict=False))
        if not rising or len(found.counts) != len(found.edges) + 1 or not sum(found.counts):
            raise ValueError("a distribution whose edges do not rise, or without its counts")
        return found


@dataclass(frozen=True, kw_only=True)
class HeldOut:
    """What a model that was trained without them answers for images of the target.

    The images that a model was trained on lie closer to its classes, so that compared with them,
    new images of the same kind would look like others.
    """

    images: int  # number of images
    outliers: int  # number of them
    distance: Distribution  # to the nearest centroid

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> "HeldOut":
        """Return what `dataclasses.asdict` gave.

        Raises:
            TypeError: If a field is missing, unknown or of another type.
            ValueError: If there is no image, or more outliers than images.
        """
        check_names(fields, {"images", "outliers", "distance"})
        found = cls(
            images=count(fields, "images"),
            outliers=count(fields, "outliers"),
            distance=Distribution.from_json(table(fields, "distance")),
        )
        if not found.images or found.outliers > found.images:
            raise ValueError("figures of held-out images that are out of range")
        return found


@dataclass(frozen=True, kw_only=True)
class TargetFigures:
    """Figures over all images of the target, under the names that the model was written with."""

    images: int  # number of images
    outlier_share: float  # share of outliers, 0 to 1
    mean_confidence: float  # 0 to 1
    held_out: HeldOut | None = None  # None where it was not measured, as in an older bundle

    @property
    def sentence(self) -> str:
        """The figures in words."""
        return (
            f"Its own target of {self.images:,} images has {self.outlier_share:.2%} outliers "
            f"and a mean confidence of {self.mean_confidence:.2f}."
        )

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> "TargetFigures":
        """Return what `dataclasses.asdict` gave.

        Raises:
            TypeError: If a field is missing, unknown or not a number.
            ValueError: If there is no image, or a share is not one.
        """
        check_names(fields, {"images", "outlier_share", "mean_confidence", "held_out"})
        held_out = optional_table(fields, "held_out")
        figures = cls(
            images=count(fields, "images"),
            outlier_share=number(fields, "outlier_share"),
            mean_confidence=number(fields, "mean_confidence"),
            held_out=None if held_out is None else HeldOut.from_json(held_out),
        )
        shares = (figures.outlier_share, figures.mean_confidence)
        if not figures.images or not all(0 <= share <= 1 for share in shares):
            raise ValueError("figures of the target that are out of range")
        return figures


def _listed(fields: dict[str, Any], name: str) -> dict[str, Any]:
    """Return a list as fields with names, which tell the entry that is wrong."""
    values: Sequence[Any] = fields.get(name, ())
    if not isinstance(values, list | tuple):
        raise TypeError(f"{name} is not a list")
    return {f"{name}[{place}]": value for place, value in enumerate(values)}
