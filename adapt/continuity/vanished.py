"""Classes that vanished from one model and return in a later one."""

from collections.abc import Collection, Sequence

import numpy as np
from numpy.typing import NDArray

from scda.adapt.continuity.earlier import Earlier
from scda.adapt.continuity.matching import match_vanished
from scda.adapt.continuity.memory import Memory
from scda.adapt.discovery.kmeans import Points
from scda.models.names import as_seen


def returned(
    earlier: Earlier,
    known: Sequence[str],
    memory: Memory,
    nearest: Points,
    free: NDArray[np.bool_],
) -> dict[int, str]:
    """Return new class → id of the class that vanished before the earlier model, and is back.

    A known class is back by the name of its folder, a discovered one by its centroid.

    Args:
        earlier: The earlier model.
        known: Labels of the known classes, K of them.
        memory: Centroids of the new classes, N of them.
        nearest: The largest cosine of each new class with a class of the earlier model, (N,).
        free: Whether a new class is none of the earlier model, (N,).
    """
    retired = {as_seen(label): i for i, label in earlier.retired.items() if i.startswith("known-")}
    labels = {new: as_seen(label) for new, label in enumerate(known) if free[new]}
    back = {new: retired[label] for new, label in labels.items() if label in retired}
    if earlier.memory is None:
        return back
    gone = earlier.memory.of_vanished()
    is_discovered = free & (np.arange(len(free)) >= len(known))
    found = match_vanished(gone.similarity(memory), nearest, is_discovered)
    ids = list(earlier.memory.vanished)
    return back | {new: ids[one] for new, one in found.items() if ids[one] in earlier.retired}


def remembered(
    earlier: Earlier, memory: Memory, vanished: Sequence[str], back: Collection[str]
) -> Memory:
    """Return the memory of a new model with the classes that may return in a later one.

    Args:
        earlier: The earlier model.
        memory: Centroids of the new model's classes.
        vanished: Ids of classes of the earlier model that the new one has not.
        back: Ids of classes that have returned.
    """
    before = earlier.memory
    if before is None or before.backbone != memory.backbone:
        return memory
    kept = {i: row for i, row in before.vanished.items() if i not in back}
    rows = {i: before.centroids[earlier.row[i]] for i in vanished if i.startswith("discovered-")}
    return memory.with_vanished(kept | {i: row for i, row in rows.items() if row.any()})
