"""Names, merges and drops that a class keeps although it may be another one by now."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from scda.adapt.continuity.changes import FEWEST, origins
from scda.adapt.continuity.earlier import Earlier
from scda.adapt.continuity.matching import Evidence
from scda.models.index import Ids
from scda.models.naming import decided_classes

# Measured on Office-31 (benchmarks/results/after.md).
_LOST = 0.5  # share of earlier images in other classes that is worth telling


def to_confirm(
    earlier: Earlier, evidence: Evidence, matched: Ids, parts: Ids, kept: Mapping[int, str]
) -> dict[str, tuple[str, ...]]:
    """Return the classes whose names, merges or drops may not fit any more, and why.

    They are those of which many images were in classes of another name; those of which half or
    more of the images in common under their earlier name, or of their own, are in other classes
    now; and parts, which nobody has seen yet: the class mixes, or a mixture that had a name has
    become another class. The name of a known class is the source's, whatever leaves it. It stays so
    in later models until somebody decides on the class again, be it as before.

    Args:
        earlier: The earlier model.
        evidence: Images in common.
        matched: The earlier class that each new class is, (N,); -1 for none.
        parts: The earlier class that each new class is a part of, (N,); -1 for none.
        kept: New class → id, of those with a name, a merge or a drop.

    Returns:
        Id of each class → the earlier classes that many of its images were in, for a part first
        that of which it is one; none where images have left.
    """
    previous, settled = earlier.manifest.previous, decided_classes(earlier.names)
    before = previous.to_confirm if previous else {}
    found = {i: before[i] for i in kept.values() if i in before and i not in settled}
    own = np.where(matched < 0, parts, matched)
    answers = np.where(own < 0, -1, evidence.answers[own])
    is_known = [info.kind == "known" for info in earlier.manifest.classes]
    for new, class_id in kept.items():
        answer = answers[new]
        others = [old for old in origins(evidence, new) if old != answer]
        if parts[new] >= 0:
            others = [int(parts[new]), *others]
        if others:
            found[class_id] = tuple(earlier.manifest.class_ids[old] for old in others)
        elif matched[new] >= 0 and (
            _have_left(evidence.shared[matched[new]], np.arange(len(matched)) == new)
            or (not is_known[answer] and _have_left(evidence.votes[answer], answers == answer))
        ):
            found.setdefault(class_id, ())
    return found


def _have_left(images: Ids, here: NDArray[np.bool_]) -> bool:
    """Return whether too many images in common are in other classes now.

    Args:
        images: Those of one earlier class, or of one earlier name, in each new class, (N,).
        here: The new classes that they may be in, (N,).
    """
    return bool(images[~here].sum() >= max(FEWEST, _LOST * images.sum()))
