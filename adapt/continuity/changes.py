"""What became of every class of an earlier model, as it is told to people."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from scda.adapt.continuity.matching import Evidence
from scda.models.index import Ids
from scda.models.previous import Became

PART = 0.2  # share of a class's images that is worth telling
FEWEST = 2  # images that are
_MOST = 0.5


@dataclass(frozen=True)
class Change:
    """What became of one class: its fate, and the new classes that have its images."""

    became: Became
    into: tuple[int, ...]  # its own successor first, then by falling number of images


def changes(evidence: Evidence, successors: Ids) -> list[Change]:
    """Return what became of every class of the earlier model, (O,).

    Args:
        evidence: Images in common.
        successors: The new class that has the id of each earlier class, (O,); -1 for none.
    """
    return [_change(evidence.shared[old], int(own)) for old, own in enumerate(successors.tolist())]


def origins(evidence: Evidence, new: int) -> tuple[int, ...]:
    """Return the earlier classes that `PART` or more of a new class's images had, most first.

    There are none if too few of its images are in common with the earlier target.
    """
    if not evidence.is_seen[new]:
        return ()
    return _parts(evidence.votes[:, new])


def _change(images: Ids, own: int) -> Change:
    parts = _parts(images)
    others = tuple(part for part in parts if part != own)
    if own >= 0:
        return Change(Became.SPLIT if others else Became.KEPT, (own, *others))
    if not others:
        return Change(Became.VANISHED, ())
    most = images[others[0]] >= _MOST * images.sum()
    return Change(Became.UNITED if most else Became.SPLIT, others)


def _parts(images: Ids) -> tuple[int, ...]:
    """Return where `PART` or more of the images are, most first."""
    least = max(FEWEST, PART * images.sum())
    order: Sequence[int] = np.argsort(-images, kind="stable").tolist()
    return tuple(index for index in order if images[index] >= least)
