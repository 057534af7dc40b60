"""How far to trust a run, each class it discovered, and a confidence, without a label."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Self

from scda.models.fields import check_names, number, numbers, texts


@dataclass(frozen=True, kw_only=True)
class Trust:
    """An estimate of the accuracy of a run, and what it was estimated from; shares are 0 to 1."""

    expected_accuracy: float  # share of the target's images of known classes that are right
    low: float  # nine of ten runs of the development suite lie between low and high
    high: float
    measures: dict[str, float] = field(default_factory=dict)  # by name; the method page lists them

    @property
    def sentence(self) -> str:
        """The estimate in words."""
        expected, low, high = (
            round(100 * share) for share in (self.expected_accuracy, self.low, self.high)
        )
        return (
            f"About {expected} of 100 images of known classes are expected to be right "
            f"({low} to {high})."
        )

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> "Trust":
        """Return what `dataclasses.asdict` gave.

        Raises:
            TypeError: If a field is missing, unknown or not a number.
        """
        measures = numbers(fields, "measures") if "measures" in fields else {}
        shares = {name: number(fields, name) for name in fields if name != "measures"}
        return cls(**shares, measures=measures)


class Doubt(StrEnum):
    """Why a discovered class may be false or mixed; the values stand in bundle.json."""

    UNSTABLE = "unstable"
    LEAKS = "leaks"


@dataclass(frozen=True, kw_only=True)
class ClassTrust:
    """How far to trust a discovered class, measured without a label; shares are 0 to 1."""

    stability: float  # share of its images most of whose neighbours are predicted as the class
    leak: float  # share of its images' neighbours that are predicted as known classes
    similarity: float  # cosine of its centroid and that of the nearest known class, -1 to 1
    doubts: tuple[Doubt, ...]  # empty if nothing speaks against the class

    @property
    def measures(self) -> str:
        """The measures in words."""
        return (
            f"{self.stability:.0%} of images among their own, {self.leak:.0%} of neighbours known"
        )

    @property
    def reason(self) -> str:
        """Why the class is doubtful, to follow "doubtful:"; empty if it is not."""
        reasons = {
            Doubt.UNSTABLE: f"only {self.stability:.0%} of its images lie among their own, "
            "so it may mix several classes",
            Doubt.LEAKS: f"{self.leak:.0%} of its images' neighbours are predicted as known, "
            "so it may be a part of a known class",
        }
        return "; ".join(reasons[doubt] for doubt in self.doubts)

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> "ClassTrust":
        """Return what `dataclasses.asdict` gave.

        Raises:
            TypeError: If a field is missing, unknown or not a number.
            ValueError: If a doubt is unknown.
        """
        shares = {name: number(fields, name) for name in fields if name != "doubts"}
        return cls(**shares, doubts=tuple(map(Doubt, texts(fields, "doubts"))))


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """The temperatures by which the model's graph divides its logits, by class id.

    An image's logits are multiplied by the mean of 1 / temperature over the classes, weighted by
    the probabilities before; the order of the classes stays.
    """

    temperature: dict[str, float]  # of every class; 1 leaves the confidence as it is
    expected: dict[str, float]  # share of right images of a discovered class, 0 to 1

    def with_ids(self, new: Mapping[str, str]) -> Self:
        """Return the calibration with other class ids; `new` are those by the old ones."""
        return replace(
            self,
            temperature={new[class_id]: value for class_id, value in self.temperature.items()},
            expected={new[class_id]: value for class_id, value in self.expected.items()},
        )

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> "Calibration":
        """Return what `dataclasses.asdict` gave.

        Raises:
            TypeError: If a field is missing, unknown or holds something other than numbers.
            ValueError: If a temperature is not above 0, or a share is not one.
        """
        check_names(fields, {"temperature", "expected"})
        found = cls(
            temperature=numbers(fields, "temperature"), expected=numbers(fields, "expected")
        )
        if not all(value > 0 for value in found.temperature.values()):
            raise ValueError("a temperature that is not above 0")
        if not all(0 <= share <= 1 for share in found.expected.values()):
            raise ValueError("an expected share that is out of range")
        return found
