"""The images that a run began with: a resumed run goes on with them, though some are lost."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from scda.adapt.data.domain_statistics import DomainStatistics
from scda.adapt.data.features import Extracted
from scda.adapt.data.scan import Rejected

# Share of a folder's images, at most; above, it is another folder rather than one with losses.
MAX_LOST = 0.1
LOST = "the file vanished or changed while the run was under way; its features are of before"

DOMAINS = ("source", "target")
Digests = Mapping[str, str]  # path relative to the folder → SHA-256 of the file's bytes
Lookup = Callable[[Sequence[str]], NDArray[np.float32] | None]


@dataclass(frozen=True)
class Recorded:
    """The images of both domains, where recorded, and the choice of statistics."""

    source: Digests = field(default_factory=dict)
    target: Digests = field(default_factory=dict)
    # Of the backbone in each domain, empty if those of its pre-training stayed; None: not recorded.
    statistics: Mapping[str, DomainStatistics] | None = None


def restore_lost(found: Extracted, root: Path, recorded: Digests, cached: Lookup) -> Extracted:
    """Return the images that were recorded, where a few of them have vanished or changed since.

    Args:
        found: The images that are there now.
        root: Folder of the images.
        recorded: The images of the run, in order.
        cached: Returns the features (N, D_backbone) of digests; None if one is not in the cache.

    Returns:
        `found` itself if nothing is lost, or if it is another set of images: with files that were
        not recorded, or without more than `MAX_LOST`.
    """
    rows = {path.relative_to(root).as_posix(): row for row, path in enumerate(found.paths)}
    lost = [
        name
        for name, digest in recorded.items()
        if name not in rows or found.digests[rows[name]] != digest
    ]
    is_other = rows.keys() - recorded.keys() or len(lost) > max(1, MAX_LOST * len(recorded))
    if not lost or is_other:
        return found
    features = cached([recorded[name] for name in lost])
    if features is None:
        return found
    of_lost = dict(zip(lost, features, strict=True))
    return Extracted(
        [root / name for name in recorded],
        np.stack([of_lost[n] if n in of_lost else found.features[rows[n]] for n in recorded]),
        list(recorded.values()),
        [
            *(
                bad
                for bad in found.rejected
                if bad.path.relative_to(root).as_posix() not in of_lost
            ),
            *(Rejected(root / name, "unreadable", LOST) for name in lost),
        ],
        [None if name in of_lost else found.stamps[rows[name]] for name in recorded],
    )
