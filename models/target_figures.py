"""What the model answers for the images of its own target: the figures to compare a stream with."""

from dataclasses import dataclass
from typing import Any

from scda.models.fields import check_names, count, number


@dataclass(frozen=True, kw_only=True)
class TargetFigures:
    """Figures over all images of the target, under the names that the model was written with."""

    images: int  # number of images
    outlier_share: float  # share of outliers, 0 to 1
    mean_confidence: float  # 0 to 1

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
        check_names(fields, {"images", "outlier_share", "mean_confidence"})
        figures = cls(
            images=count(fields, "images"),
            outlier_share=number(fields, "outlier_share"),
            mean_confidence=number(fields, "mean_confidence"),
        )
        shares = (figures.outlier_share, figures.mean_confidence)
        if not figures.images or not all(0 <= share <= 1 for share in shares):
            raise ValueError("figures of the target that are out of range")
        return figures
