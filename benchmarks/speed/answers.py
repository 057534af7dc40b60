"""Measured figures compared with their bounds: the last lines of every benchmark."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Answer:
    """One measured figure and its bound."""

    name: str
    ratio: float
    bar: float
    at_least: bool = False

    @property
    def passes(self) -> bool:
        """Whether the figure meets its bound."""
        return self.ratio >= self.bar if self.at_least else self.ratio <= self.bar

    def __str__(self) -> str:
        """Return the line to print."""
        verdict = "PASS" if self.passes else "FAIL"
        return f"{verdict} name={self.name} ratio={self.ratio:.4g} bar={self.bar:.4g}"


@dataclass(frozen=True)
class NotApplicable:
    """A figure that was not measured, or has no bound on this machine, and why."""

    name: str
    reason: str

    @property
    def passes(self) -> bool:
        """Whether it meets its bound: it has none."""
        return True

    def __str__(self) -> str:
        """Return the line to print."""
        return f"NOT APPLICABLE name={self.name}: {self.reason}"


def exit_code(answers: Sequence[Answer | NotApplicable]) -> int:
    """Print one line per answer; return 0 if all that apply pass, else 1."""
    print("", *answers, sep="\n")
    return 0 if all(answer.passes for answer in answers) else 1
