"""How far to trust a run: an estimate of its accuracy, made without a label of the target."""

from dataclasses import dataclass, field
from typing import Any


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
        measures = {name: _number(value) for name, value in fields.get("measures", {}).items()}
        numbers = {name: _number(value) for name, value in fields.items() if name != "measures"}
        return cls(**numbers, measures=measures)


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{value!r} is not a number")
    return float(value)
