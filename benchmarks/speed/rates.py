"""How fast programs are: images per second, and the processor time of an image."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Rate:
    """How fast one program is."""

    per_second: float  # images
    processor_seconds: float  # of one image, on all cores together

    def __str__(self) -> str:
        """Return images per second, and the processor time in milliseconds."""
        return f"{self.per_second:.1f} ({1000 * self.processor_seconds:.1f} ms)"


def shown(rates: Mapping[str, Rate]) -> str:
    """Return the rates of programs as one line."""
    each = ", ".join(f"{name} {rate}" for name, rate in rates.items())
    return f"images/s (processor time of one): {each}"
