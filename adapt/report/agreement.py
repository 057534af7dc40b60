"""How far a second training agrees with the confidence: what a run can tell without labels."""

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from scda.adapt.evaluation.reliability import even_bins
from scda.adapt.report.figures import reliability_svg
from scda.adapt.runs.tables import HeldOutRow


@dataclass(frozen=True)
class Agreed:
    """The agreement of a second training on the images that it never saw."""

    images: int
    share: float  # of them that it puts into the same class, 0 to 1
    confidence: float  # their mean, 0 to 1
    uncalibrated: float  # the same before calibration
    before: str  # plot over the confidence before calibration, an SVG element
    after: str


def agreed(rows: Sequence[HeldOutRow]) -> Agreed | None:
    """Return the agreement and its plots; None without rows, as in a run without that training."""
    if not rows:
        return None
    return Agreed(
        images=len(rows),
        share=float(np.mean([row.agrees for row in rows])),
        confidence=float(np.mean([row.confidence for row in rows])),
        uncalibrated=float(np.mean([row.uncalibrated for row in rows])),
        before=_plot(rows, lambda row: row.uncalibrated),
        after=_plot(rows, lambda row: row.confidence),
    )


def _plot(rows: Sequence[HeldOutRow], confidence: Callable[[HeldOutRow], float]) -> str:
    bins: list[dict[str, Any]] = []
    for kind in ("known", "discovered"):
        of_kind = [row for row in rows if row.class_id.startswith(f"{kind}-")]
        certain = np.array([confidence(row) for row in of_kind], np.float32)
        found = even_bins(certain, np.array([row.agrees for row in of_kind], np.bool_))
        bins += [{"kind": kind, **dataclasses.asdict(one)} for one in found]
    return reliability_svg(bins, share="share that agrees")
