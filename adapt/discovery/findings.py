"""What a run found that its user should know: a status, what was found, and what to do about it."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum


class Status(StrEnum):
    """Kind of a finding; the values stand in bundle.json."""

    OK = "ok"
    NOTHING_NEW = "nothing new found"
    WEAK_TRANSFER = "weak transfer"
    DOUBTFUL = "doubtful"
    COLLAPSED = "collapsed"
    K_UNSURE = "k unsure"
    K_UNSTABLE = "unstable k"
    K_AT_BOUND = "k at its bound"
    FEWER_THAN_K = "fewer than asked for"
    GAME_COLLAPSED = "game collapsed"
    UNSTEADY = "unsteady training"
    DIVERGED = "diverged"
    EMPTY_CLASS = "empty class"


_ABOUT_NEW = (
    Status.K_UNSURE,
    Status.K_UNSTABLE,
    Status.K_AT_BOUND,
    Status.FEWER_THAN_K,
    Status.GAME_COLLAPSED,
)


@dataclass(frozen=True)
class Finding:
    """One thing the user should know of a run."""

    status: Status
    found: str  # what was measured, and what was expected
    advice: str  # what to do

    def __str__(self) -> str:
        """Return the finding as one line of text."""
        return f"{self.status}: {self.found}; {self.advice}"


def consistent(findings: Iterable[Finding]) -> list[Finding]:
    """Return the findings without doubts about new classes where the verdict is that none is left.

    The doubts arose before the verdict, and their advice contradicts its own.
    """
    found = list(findings)
    nothing = any(finding.status is Status.NOTHING_NEW for finding in found)
    return [finding for finding in found if not (nothing and finding.status in _ABOUT_NEW)]


def statuses(findings: Iterable[Finding]) -> tuple[str, ...]:
    """Return each status once, in the order of the findings; `ok` where there is no finding."""
    return tuple(dict.fromkeys(finding.status.value for finding in findings)) or (Status.OK.value,)
