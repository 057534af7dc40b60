"""How many new classes: as many as classes of the usual size make up T_im."""

import numpy as np

from scda.adapt.discovery.counting.estimate import KEstimate
from scda.adapt.discovery.space import Space

_OF_CLASS = 2  # T_kn holds the surer half of every known class


def estimate_by_size(space: Space) -> KEstimate:
    """Return k* as the size of T_im over the median size of the known classes in the target."""
    sizes = np.bincount(space.known_labels)
    sizes = _OF_CLASS * sizes[sizes > 0]
    if not len(sizes):
        return KEstimate(1)
    return KEstimate(max(1, round(len(space.implicit) / float(np.median(sizes)))))
