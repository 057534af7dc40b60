"""Measures of a run's outcome that need no label of the target; each is a share or in nats.

None of them sees the truth. They ask whether independent views of the target agree: the final
model, the nearest neighbours in both domains, the class means of the source, and landing.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from scda.adapt.discovery.kmeans import Points
from scda.adapt.discovery.neighbours import nearest_among
from scda.adapt.discovery.novelty.certain import best_two, certain_halves, typical
from scda.adapt.discovery.trust.outcome import Outcome
from scda.models.index import Ids

_SHARE, _LEAST_NEAREST = 4, 3  # the nearest images of a class: an even share over 4, at least 3
_VOTERS = 5  # source images that vote on the class of a target image
_FLOOR = 0.03  # of a landing before the logarithm
_DIGITS = 4  # number of decimals of a measure, so that it is the same on every machine


def measure(outcome: Outcome) -> dict[str, float]:
    """Return every measure of an outcome by name."""
    return {name: round(function(outcome), _DIGITS) for name, function in MEASURES.items()}


def nearest_called_known(outcome: Outcome) -> float:
    """Return the share of the images nearest to a known class that are predicted as known.

    A class's nearest images are those with the highest cosine to its mean in the source, a quarter
    of what it would have if the target were shared out evenly among the known classes.
    """
    domains, new = outcome.domains, outcome.predicted >= outcome.num_known
    cosines = domains.target @ domains.centres.T
    count = max(_LEAST_NEAREST, len(cosines) // (_SHARE * outcome.num_known))
    nearest_images = np.argsort(-cosines, axis=0, kind="stable")[:count]
    return float(1 - new[nearest_images].mean())


def knn_agreement(outcome: Outcome) -> float:
    """Return the share of images predicted as known whose class most of 5 neighbours have.

    The neighbours are the nearest source images.
    """
    domains = outcome.domains
    found = nearest_among(domains.target, domains.source, min(_VOTERS, len(domains.source)))
    votes = np.zeros((len(found), outcome.num_known), np.int64)
    np.add.at(votes, (np.arange(len(found))[:, None], domains.labels[found]), 1)
    return _share_of_known(outcome, votes.argmax(axis=1))


def prototype_agreement(outcome: Outcome) -> float:
    """Return the share of images predicted as known that are nearest to the mean of their class.

    The means are those of the source.
    """
    domains = outcome.domains
    return _share_of_known(outcome, (domains.target @ domains.centres.T).argmax(axis=1))


def neighbour_agreement(outcome: Outcome) -> float:
    """Return the share of the ten nearest target images that have the same class."""
    predicted = outcome.predicted
    return _mean(predicted[outcome.near] == predicted[:, None])


def border(outcome: Outcome) -> float:
    """Return the share of the ten nearest target images across the border of known and new."""
    new = outcome.predicted >= outcome.num_known
    return _mean(new[outcome.near] != new[:, None])


def landed_on_new(outcome: Outcome) -> float:
    """Return the share of the known classes' landing that falls on images called new."""
    new = outcome.predicted >= outcome.num_known
    whole = np.maximum(outcome.domains.landed.sum(axis=0), 1e-12)
    return float((outcome.domains.landed[new].sum(axis=0) / whole).mean())


def evenness(outcome: Outcome) -> float:
    """Return how many known classes of equal size would be as mixed as those found, over K."""
    num_known = outcome.num_known
    sizes = np.bincount(outcome.predicted, minlength=num_known)[:num_known]
    shares = sizes[sizes > 0] / max(1, sizes.sum())
    return float(np.exp(-(shares * np.log(shares)).sum()) / num_known) if len(shares) else 0.0


def landing_agreement(outcome: Outcome) -> float:
    """Return the share of images that landing alone would call known or new as the run does."""
    lacking, own, other = _lacking(outcome)
    new = outcome.predicted >= outcome.num_known
    return _mean((lacking > (own + other) / 2) == new)


def separation(outcome: Outcome) -> float:
    """Return by how many nats certain images receive more of their class than of the next one.

    It is small where the domains lie far apart, or the classes close together.
    """
    _, own, other = _lacking(outcome)
    return other - own


MEASURES: dict[str, Callable[[Outcome], float]] = {
    "nearest_called_known": nearest_called_known,
    "knn_agreement": knn_agreement,
    "prototype_agreement": prototype_agreement,
    "neighbour_agreement": neighbour_agreement,
    "border": border,
    "landed_on_new": landed_on_new,
    "evenness": evenness,
    "landing_agreement": landing_agreement,
    "separation": separation,
}


def _lacking(outcome: Outcome) -> tuple[Points, float, float]:
    """Return how much landing each image lacks, (M,), and certain images of theirs and the next.

    All three are in nats.
    """
    first, second = best_two(outcome.domains.landed)
    lacking = -np.log(outcome.domains.trusted.max(axis=1) + _FLOOR)
    certain = certain_halves(outcome.domains.landed.argmax(axis=1), -first)
    return lacking, typical(lacking, certain), typical(-np.log(second + _FLOOR), certain)


def _share_of_known(outcome: Outcome, classes: Ids) -> float:
    known = outcome.predicted < outcome.num_known
    return float((classes == outcome.predicted)[known].mean()) if known.any() else 0.0


def _mean(same: NDArray[np.bool_]) -> float:
    return float(same.mean()) if same.size else 0.0
