"""The largest images that are read, the same for training, labelling and the server."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from scda.models.errors import GateError, UsageError

MAX_BYTES = 64 * 2**20
MAX_PIXELS = 50_000_000  # width x height as the header states them
# Above these, a decoded image takes more than 3 GiB, and reading it longer than anything else.
MOST_BYTES, MOST_PIXELS = 2**32, 2**30


@dataclass(frozen=True, kw_only=True)
class ImageLimits:
    """The largest image that is read; a larger one has an error."""

    max_bytes: int = MAX_BYTES
    max_pixels: int = MAX_PIXELS

    def __post_init__(self) -> None:
        """Check both.

        Raises:
            UsageError: If one is out of range.
        """
        for name, most in (("max_bytes", MOST_BYTES), ("max_pixels", MOST_PIXELS)):
            if not 1 <= getattr(self, name) <= most:
                raise UsageError(f"{name} is {getattr(self, name)}; expected 1 to {most}")

    @classmethod
    def of_run(cls, run: Mapping[str, Any]) -> "ImageLimits":
        """Return the limits of a training, which its images fit.

        Args:
            run: The facts about the run in a bundle or in config.json; old ones have no limits.

        Raises:
            GateError: If these are no limits.
        """
        try:
            stated = dict(run.get("limits", {}))
            names = [field.name for field in fields(cls) if field.name in stated]
            return cls(**{name: int(stated[name]) for name in names})
        except (OverflowError, TypeError, ValueError, UsageError) as error:
            raise GateError(f"the limits of the training are damaged: {error}") from None


LIMITS = ImageLimits()
