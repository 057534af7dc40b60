"""How the answers of a model of int8 differ from those of the model that it was made from."""

from dataclasses import dataclass
from typing import Any, Self

from scda.models.fields import check_names, count, number, numbers, text

_NAMES = {
    *("precision", "model_id", "calibration_images", "images", "equal_labels", "min_agreement"),
    *("agreement", "largest_loss", "largest_loss_in", "confidence_difference"),
}


@dataclass(frozen=True, kw_only=True)
class Quantisation:
    """The precision of a model, and its agreement with the float32 one on the target's images."""

    precision: str  # int8: weights and activations of the convolutions
    model_id: str  # id of the float32 model
    calibration_images: int  # images that the ranges of the activations were measured on
    images: int  # images of the target that both models answered
    equal_labels: float  # share of them that have the same class in both
    min_agreement: float  # least share of equal labels that was accepted
    agreement: dict[str, float]  # that share by class id, of the float32 model's images of a class
    largest_loss: float  # 1 - the smallest of these shares
    largest_loss_in: str  # the class id that has it
    confidence_difference: float  # mean of the absolute difference of confidences

    @property
    def sentence(self) -> str:
        """The agreement in words."""
        return (
            f"{self.precision} of model {self.model_id}: {self.equal_labels:.2%} of "
            f"{self.images:,} target images keep their class, {1 - self.largest_loss:.1%} in "
            f"{self.largest_loss_in}, the class that loses most."
        )

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> Self:
        """Return what `dataclasses.asdict` gave.

        Raises:
            TypeError: If a field is missing, unknown or of another type.
            ValueError: If the precision is unknown, or a share is not one.
        """
        check_names(fields, _NAMES)
        shares = {
            name: number(fields, name)
            for name in ("equal_labels", "min_agreement", "largest_loss", "confidence_difference")
        }
        found = cls(
            precision=text(fields, "precision"),
            model_id=text(fields, "model_id"),
            calibration_images=count(fields, "calibration_images"),
            images=count(fields, "images"),
            agreement=numbers(fields, "agreement"),
            largest_loss_in=text(fields, "largest_loss_in"),
            **shares,
        )
        if found.precision != "int8":
            raise ValueError(f"the precision {found.precision!r}")
        if not all(0 <= share <= 1 for share in (*shares.values(), *found.agreement.values())):
            raise ValueError("a share of a quantised model that is out of range")
        return found
