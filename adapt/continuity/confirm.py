"""Names, merges and drops that a class keeps although it may be another one by now."""

from collections.abc import Mapping

import numpy as np

from scda.adapt.continuity.changes import origins
from scda.adapt.continuity.earlier import Earlier
from scda.adapt.continuity.matching import Evidence
from scda.models.index import Ids
from scda.models.naming import decided_classes

# Measured on Office-31 (benchmarks/results/after.md).
_LOST = 0.5  # share of a class's earlier images in other classes that is worth telling


def to_confirm(
    earlier: Earlier, evidence: Evidence, matched: Ids, parts: Ids, kept: Mapping[int, str]
) -> dict[str, tuple[str, ...]]:
    """Return the classes whose names, merges or drops may not fit any more, and why.

    They are those of which many images were in classes of another name, those that half or more of
    their earlier images have left, or of the images under their earlier name, and parts, which
    nobody has seen yet: the class mixes, or a mixture that had a name has become another class. It
    stays so in later models until somebody decides on the class again, be it with the same name.

    Args:
        earlier: The earlier model.
        evidence: Images in common.
        matched: The earlier class that each new class is, (N,); -1 for none.
        parts: The earlier class that each new class is a part of, (N,); -1 for none.
        kept: New class → id, of those with a name, a merge or a drop.

    Returns:
        Id of each class → the earlier classes that many of its images were in; none where its own
        earlier images have left.
    """
    previous, settled = earlier.manifest.previous, decided_classes(earlier.names)
    before = previous.to_confirm if previous else {}
    found = {i: before[i] for i in kept.values() if i in before and i not in settled}
    own = np.where(matched < 0, parts, matched)
    answers = np.where(own < 0, -1, evidence.answers[own])
    for new, class_id in kept.items():
        self_before = answers[new] if matched[new] >= 0 else -1  # a part was not itself before
        others = [old for old in origins(evidence, new) if old != self_before]
        if others:
            found[class_id] = tuple(earlier.manifest.class_ids[old] for old in others)
        elif own[new] >= 0 and _has_lost(evidence, matched, answers, new):
            found.setdefault(class_id, ())
    return found


def _has_lost(evidence: Evidence, matched: Ids, answers: Ids, new: int) -> bool:
    """Return whether a class, or all of its earlier name together, has lost too many images.

    Args:
        evidence: Images in common.
        matched: The earlier class that each new class is, (N,); -1 for none.
        answers: The class that answered for the earlier one of each new class, (N,), or -1.
        new: The class.
    """
    before = [(evidence.votes[answers[new]], answers == answers[new])]
    if matched[new] >= 0:
        before.append((evidence.shared[matched[new]], np.arange(len(matched)) == new))
    return any(
        images.any() and 1 - images[here].sum() / images.sum() >= _LOST for images, here in before
    )
