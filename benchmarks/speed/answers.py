"""A measured figure against its bar: the last lines of every benchmark."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Answer:
    """One measured figure against its bar."""

    name: str
    ratio: float
    bar: float
    at_least: bool = False

    @property
    def passes(self) -> bool:
        """Whether the figure meets its bar."""
        return self.ratio >= self.bar if self.at_least else self.ratio <= self.bar

    def __str__(self) -> str:
        """Return the line that is printed."""
        verdict = "PASS" if self.passes else "FAIL"
        return f"{verdict} name={self.name} ratio={self.ratio:.4g} bar={self.bar:.4g}"


def exit_code(answers: Sequence[Answer]) -> int:
    """Print a line for each answer; return 0 if all pass, else 1."""
    print("", *answers, sep="\n")
    return 0 if all(answer.passes for answer in answers) else 1
