"""What the measures of a run say about its accuracy."""

import math
from collections.abc import Mapping

from scda.adapt.discovery.findings import Finding, Status
from scda.adapt.discovery.trust.calibration import (
    DOUBTFUL,
    ERROR,
    KNOWN_ERROR,
    WEAK,
    WIDTH,
    contradiction,
)
from scda.models.trust import Trust

_DIGITS = 4  # number of decimals
_WHAT_HELPS = (
    "label about twenty target images (`scda-adapt pick RUN --n 20` chooses them): copy each into "
    "the folder of its class in the source, also of a new one, and train again"
)


def estimate(measures: Mapping[str, float]) -> Trust:
    """Return how accurate a run with these measures is expected to be.

    Args:
        measures: Every measure by name, as `measure` returns them.
    """
    error = max(KNOWN_ERROR.error(measures), contradiction(measures))
    half = WIDTH * math.sqrt(error)
    return Trust(
        expected_accuracy=round(1 - error, _DIGITS),
        low=round(max(0.0, 1 - error - half), _DIGITS),
        high=round(min(1.0, 1 - error + half), _DIGITS),
        measures=dict(measures),
    )


def doubts(trust: Trust) -> list[Finding]:
    """Return a finding where a run is expected to be wrong too often."""
    known = 1 - trust.expected_accuracy
    error = max(ERROR.error(trust.measures), contradiction(trust.measures))
    if known >= WEAK:
        found = (
            f"about {100 * known:.0f} of 100 images of known classes are expected to be wrong "
            f"(expected fewer than {100 * WEAK:.0f}): the features do not carry to the target, "
            "or it holds hardly any image of a known class"
        )
        return [Finding(Status.WEAK_TRANSFER, found, _WHAT_HELPS)]
    if error >= DOUBTFUL:
        found = (
            f"about {100 * error:.0f} of 100 images are expected to be wrong, new ones included "
            f"(expected fewer than {100 * DOUBTFUL:.0f})"
        )
        return [Finding(Status.DOUBTFUL, found, f"check the report, or {_WHAT_HELPS}")]
    return []
