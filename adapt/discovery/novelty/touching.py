"""New classes that touch a known one: groups of images that are taken for the class beside them.

Where classes touch, landing and remoteness find little amiss with the images of a new class that
resembles a known one. So the target is divided as finely as classes of the source are whole. A
group that is no more like its class than touching classes of the source are like each other is
another class, if another group stands for the known one.
"""

import numpy as np
from numpy.typing import NDArray

from scda.adapt.discovery.communities import shared_neighbours, thinned_rows
from scda.adapt.discovery.grain import Grain
from scda.adapt.discovery.kmeans import Points
from scda.adapt.discovery.novelty.landing import class_centres
from scda.models.index import Ids

_FEWEST = 4  # images of a group that can stand for its class
_USUAL = 0.05  # quantile of how alike groups are to the class that they stand for


def beside_known(
    centres: Points, target: Points, predicted: Ids, new: NDArray[np.bool_], grain: Grain
) -> NDArray[np.bool_]:
    """Return which images belong to a group that lies beside its known class, (M,).

    Args:
        centres: Centres of the known classes in the source, of length 1, (K, D).
        target: Points of the target, of length 1, (M, D).
        predicted: Known class that each image is most likely of, (M,).
        new: Whether an image is taken for new anyway, (M,).
        grain: What the classes of the source show.
    """
    groups = _groups(target, grain)
    sizes = np.bincount(groups)
    known = 2 * np.bincount(groups, ~new) > sizes
    table = np.zeros((len(sizes), len(centres)), np.int64)
    np.add.at(table, (groups, predicted), 1)
    own = table.argmax(axis=1)
    similar = (class_centres(target, groups) * centres[own]).sum(axis=1)
    standing = _standing(own, similar, known & (sizes >= _FEWEST))
    if not len(standing):
        return np.zeros(len(target), bool)
    limit = min(grain.likeness, float(np.quantile(similar[standing], _USUAL)))
    beside = known & (similar < limit)
    beside[standing] = False
    return np.asarray(beside[groups] & ~new)


def _standing(own: Ids, similar: Points, eligible: NDArray[np.bool_]) -> Ids:
    """Return the groups that are most like their class, one for every class that has a group."""
    rows = np.flatnonzero(eligible)
    best_first = rows[np.argsort(-similar[rows], kind="stable")]
    return np.asarray(best_first[np.unique(own[best_first], return_index=True)[1]], np.int64)


def _groups(target: Points, grain: Grain) -> Ids:
    """Return the group of every image, (M,); above 10,000 images, that with the nearest centre."""
    rows = thinned_rows(len(target))
    found = grain.communities(shared_neighbours(target[rows]))
    if len(rows) == len(target):
        return found
    nearest = (target @ class_centres(target[rows], found).T).argmax(axis=1)
    return np.asarray(np.unique(nearest, return_inverse=True)[1], np.int64)
