"""How close two domains lie in the features of a backbone, without a label of the target."""

from dataclasses import dataclass

import numpy as np

from scda.adapt.discovery.kmeans import Points
from scda.adapt.discovery.novelty.landing import class_centres, landing
from scda.adapt.discovery.novelty.whitening import fit_whitening
from scda.adapt.discovery.propagation import neighbour_graph
from scda.models.index import Ids, build_index, nearest, normalised

_VOTERS = 5  # source images that vote on the class of a target image
_FARTHER = 0.09  # of the cosine; features by batch lack up to 0.05 where statistics help


@dataclass(frozen=True)
class Closeness:
    """Two views of how close the domains lie; each is larger where they are closer.

    Attributes:
        agreement: Share of target images on which landing agrees with 5 source neighbours, and with
            the nearest class mean of the source; the mean of both.
        cosine: Mean cosine between a class's mean in the source and in the target, whose surest
            half by landing stands for the class.
    """

    agreement: float
    cosine: float


def closeness(source: Points, labels: Ids, target: Points) -> Closeness:
    """Return how close two domains lie.

    Args:
        source: Backbone features of the source, (N, D_backbone).
        labels: Labels of the source, (N,); a class without images is left out.
        target: Backbone features of the target, (M, D_backbone).
    """
    labels = np.unique(labels, return_inverse=True)[1]
    whitening = fit_whitening(source, labels, target)
    points, others = whitening.source(source), whitening.target(target)
    landed = landing(points, labels, others, neighbour_graph(others))
    classes, surest = landed.argmax(axis=1), landed.max(axis=1)
    centres, num_known = class_centres(points, labels), landed.shape[1]
    _, found = nearest(build_index(points), others, _VOTERS)
    votes = np.apply_along_axis(np.bincount, 1, labels[found], None, num_known)
    nearest_mean = (others @ centres.T).argmax(axis=1)
    sure = surest >= np.median(surest)
    cosines = [
        float(centre @ normalised(others[sure & (classes == label)].mean(axis=0)[None])[0])
        if (sure & (classes == label)).any()
        else 0.0
        for label, centre in enumerate(centres)
    ]
    return Closeness(
        float(np.mean([voted == classes for voted in (votes.argmax(axis=1), nearest_mean)])),
        float(np.mean(cosines)),
    )


def is_closer(after: Closeness, before: Closeness) -> bool:
    """Return whether the domains lie closer by both views: one alone is often wrong."""
    return after.agreement > before.agreement and after.cosine > before.cosine


def is_far_off(after: Closeness, before: Closeness) -> bool:
    """Return whether domains that are normalised batch by batch lie much farther apart than before.

    The batches' statistics are less certain than those of the domain, so that little is no sign.
    """
    return after.cosine < before.cosine - _FARTHER
