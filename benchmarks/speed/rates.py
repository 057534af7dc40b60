"""How fast programs are: images per second, and the processor time of an image."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Rate:
    """How fast one program is."""

    per_second: float  # images
    processor_seconds: float  # of one image, on all cores together

    def __str__(self) -> str:
        """Return images per second, and the processor time in milliseconds."""
        return f"{self.per_second:.1f} ({1000 * self.processor_seconds:.1f} ms)"


Rates = Mapping[str, Rate]  # name of the program → its rate


def shown(rates: Rates) -> str:
    """Return the rates of programs as one line."""
    each = ", ".join(f"{name} {rate}" for name, rate in rates.items())
    return f"images/s (processor time of one): {each}"


def middle(rounds: Sequence[Rates]) -> dict[str, Rate]:
    """Return the medians over rounds, of each program and figure."""
    return {
        name: Rate(
            statistics.median(rates[name].per_second for rates in rounds),
            statistics.median(rates[name].processor_seconds for rates in rounds),
        )
        for name in rounds[0]
    }


def table(of_images: Mapping[str, Rates]) -> str:
    """Return a row per program in Markdown: images per second, processor ms per image.

    Args:
        of_images: What the images are → the rates of the same programs.
    """
    columns = [f"{what}: images/s | ms of processor" for what in of_images]
    programs = next(iter(of_images.values()))
    rows = [
        [
            name,
            *(f"{r[name].per_second:.1f} | {1000 * r[name].processor_seconds:.1f}" for r in rates),
        ]
        for rates in [list(of_images.values())]
        for name in programs
    ]
    head = ["program", *columns]
    ruler = "|---" * (1 + 2 * len(columns)) + "|"
    lines = [f"| {' | '.join(row)} |" for row in (head, *rows)]
    return "\n".join([lines[0], ruler, *lines[1:]])
