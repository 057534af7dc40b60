"""The images of classes that people have decided on, which a new discovery does not unite."""

from collections.abc import Collection, Sequence

import numpy as np

from scda.adapt.continuity.earlier import Earlier
from scda.models.index import Ids


def anchors_of(earlier: Earlier, digests: Sequence[str], promoted: Collection[int] = ()) -> Ids:
    """Return the discovered class that each image of a target had, (M,).

    It is -1 for a new image, and for one of a class that nobody has named, merged or dropped. Of
    merged classes it is the one that answers.

    Args:
        earlier: The earlier model.
        digests: SHA-256 of every target image, (M,).
        promoted: Rows of earlier classes that are classes of the source now.
    """
    names, answers = earlier.names, earlier.answers
    decided = {*names.labels, *names.merges, *names.merges.values(), *names.drops}
    of_class = {
        info.class_id: answers[row]
        for row, info in enumerate(earlier.manifest.classes)
        if info.kind == "discovered" and info.class_id in decided and row not in promoted
    }
    found = (of_class.get(earlier.images.get(digest, ""), -1) for digest in digests)
    return np.fromiter(found, np.int64, len(digests))
