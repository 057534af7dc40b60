"""Places: where in the target the known classes lie, and how far images are from all of them.

Within the target no domain gap lies between an image and a class. Images of a known class that the
source does not resemble are still close to their class; images of a new class are close to none.
"""

import numpy as np
from scipy.sparse import csr_array
from scipy.special import expit

from scda.adapt.discovery.kmeans import Points
from scda.adapt.discovery.novelty.certain import best_two, typical
from scda.adapt.discovery.novelty.landing import credibility, similarity
from scda.models.index import Ids, normalised

_MOST = 2.0  # nats
_UNCERTAIN = 1e-6  # weight of an uncertain image in a place, where a certain one has 1
_CLOSEST = 1e-3  # cosine between what is typical with a class and without it


def remoteness(
    places: Points, centres: Points, target: Points, graph: csr_array, certain: list[Ids]
) -> Points:
    """Return how remote an image's surroundings are from the places of all classes, (M,).

    It is -1 nat where they are as close as those of certain images usually are to their class, and
    1 as close as those are to the next class, which is what would be left had their class been
    unknown; beyond, it goes on to -2 and 2. The place of a class that does not resemble the class
    in the source counts less.

    Args:
        places: As `class_places` returns it, (K, D).
        centres: Centres of the classes in the source, of length 1, (K, D).
        target: Points of the target, of length 1, (M, D).
        graph: Neighbour graph of the target.
        certain: Rows of the certain images of each class.
    """
    alike = (places * centres).sum(axis=1)
    closest, next_one = best_two(similarity(places, target, graph) * credibility(alike, alike))
    own, other = typical(closest, certain), typical(next_one, certain)
    unit = max((own - other) / 2, _CLOSEST)
    return np.asarray(np.clip(((own + other) / 2 - closest) / unit, -_MOST, _MOST), np.float32)


def class_places(target: Points, posterior: Points, evidence: Points, certain: list[Ids]) -> Points:
    """Return the centre of every class in the target, of length 1, (K, D).

    The certain images make it up, each in proportion to the square of its probability of the class;
    all others hardly count, so that a new class that is taken for a known one does not move it.

    Args:
        target: Points of the target, of length 1, (M, D).
        posterior: Probabilities of the known classes, (M, K).
        evidence: Evidence that an image is new, (M,), in nats.
        certain: Rows of the certain images of each class.
    """
    trust = np.full(len(target), _UNCERTAIN)
    trust[np.concatenate(certain)] = 1
    known = posterior * expit(-evidence)[:, None]
    return normalised(np.asarray((known**2 * trust[:, None]).T @ target, np.float32))
