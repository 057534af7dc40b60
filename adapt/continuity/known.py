"""Which class of an earlier model each class of the source is."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from scda.adapt.continuity.earlier import Earlier
from scda.models.index import Ids
from scda.models.names import as_seen


@dataclass(frozen=True)
class KnownClasses:
    """The known classes of a new model beside the classes of an earlier one."""

    rows: Ids  # (K,), the earlier known class that each class is, -1 for none
    promoted: dict[int, int]  # earlier discovered class → known class that it is now


def known_classes(
    earlier: Earlier, labels: Sequence[str], source: Mapping[str, str]
) -> KnownClasses:
    """Return which earlier class each class of the source is.

    A known class is found again by the name of its folder, or by the name that people gave it. A
    class of the source that is new may be a discovered class that was promoted: it has its name, or
    most of its images are images of the earlier target that were predicted as it.

    Args:
        earlier: The earlier model.
        labels: Labels of the known classes, K of them.
        source: SHA-256 → label of every source image.
    """
    infos = list(enumerate(earlier.manifest.classes))
    known = [(row, info) for row, info in infos if info.kind == "known"]
    given = {as_seen(earlier.names.label(info)): row for row, info in known}
    own = {as_seen(info.label): row for row, info in known}
    rows = [own.get(as_seen(label), -1) for label in labels]
    for new, label in enumerate(labels):  # a folder that was renamed as people renamed the class
        row = given.get(as_seen(label), -1)
        rows[new] = row if rows[new] < 0 and row not in rows else rows[new]
    fresh = [new for new, row in enumerate(rows) if row < 0]
    by_images = _by_images(earlier, source)
    found = [(row, info) for row, info in infos if earlier.answers[row] == row]
    named = {as_seen(earlier.names.label(info)): row for row, info in found if info.kind != "known"}
    promoted: dict[int, int] = {}
    for new in fresh:
        answer = named.get(as_seen(labels[new]), by_images.get(labels[new], -1))
        if answer >= 0 and earlier.manifest.classes[answer].kind == "discovered":
            parts = [row for row, into in enumerate(earlier.answers) if into == answer]
            promoted |= dict.fromkeys(parts, new)
    return KnownClasses(np.array(rows, np.int64), promoted)


def _by_images(earlier: Earlier, source: Mapping[str, str]) -> dict[str, int]:
    """Return label → earlier class of more than half of its images that the target had."""
    counts: dict[str, Counter[int]] = {}
    for digest, label in source.items():
        if digest in earlier.images:
            answer = earlier.answers[earlier.row[earlier.images[digest]]]
            counts.setdefault(label, Counter())[answer] += 1
    most = {label: of.most_common(1)[0] for label, of in counts.items()}
    return {label: row for label, (row, n) in most.items() if 2 * n > counts[label].total()}
