"""Whether anything is new in the target, and which images: one decision from two witnesses.

*Landing* needs no training and sees few new classes, but misleads where the domains lie far apart.
*p(unknown)* of pre-training is trained on the whole target and knows better where much is new.
Their evidence is added, as odds multiply; the cheapest cut through the target's neighbours then
decides, so that a single odd image is no class. Too little evidence in all is nothing new.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.special import softmax

from scda.adapt.discovery.kmeans import Points
from scda.adapt.discovery.neighbours import nearest_others
from scda.adapt.discovery.novelty.cut import cheapest_cut
from scda.adapt.discovery.novelty.landing import believed, landing, similarity
from scda.models.index import Ids

# Chosen on the development suite; docs/method.md says how well they hold.
LEAST_EVIDENCE = 1.5  # nats times an average known class's images; less in all is nothing
_LEAST_IMAGES = 3  # that form a class
_WEIGHT = 1.3  # of landing's evidence beside that of p(unknown)
_BIAS = 0.1  # nats towards new
_FLOOR = 0.03  # of a landing, where an image of the class has about 1
_MOST = 4.0  # nats of evidence that one image gives
_PRICE = 1.0  # nats for an image whose neighbours all have the other label
_NEIGHBOURS = 10
_FEWEST = 4  # images that make a class typical
_SMALLEST = 1e-6
_ODDS = 1 / 400  # p(unknown) is kept this far from 0 and 1


@dataclass(frozen=True)
class Orphans:
    """The decision about every target image."""

    posterior: Points  # (M, K) probabilities of the known classes, by both witnesses
    evidence: Points  # (M,) nats; positive for new
    new: NDArray[np.bool_]  # (M,)
    total: float  # evidence of all new images per image of an average known class, before the gate

    @property
    def logits(self) -> Points:
        """The decision as log-probabilities, (M, K + 1); the last output is new."""
        known = self.posterior * ~self.new[:, None]
        probabilities = np.hstack([known, self.new[:, None]])
        return np.asarray(np.log(np.maximum(probabilities, 1e-12)), np.float32)


def find_orphans(
    source: Points, labels: Ids, target: Points, graph: csr_array, logits: Points, *, gate: bool
) -> Orphans:
    """Return which target images are new.

    Args:
        source: Points of the source, of length 1, (N, D).
        labels: Labels of the source, (N,), 0 to K - 1.
        target: Points of the target, of length 1, (M, D).
        graph: Neighbour graph of the target.
        logits: Propagated logits of pre-training, (M, K + 1); the last output is unknown.
        gate: Whether too little evidence in all means that nothing is new.
    """
    probabilities = softmax(logits.astype(np.float64), axis=1)
    landed = landing(source, labels, target, graph)
    trusted = believed(landed, similarity(source, labels, target, graph))
    evidence = novelty_evidence(landed, trusted, probabilities)
    new = cheapest_cut(evidence, nearest_others(target, _NEIGHBOURS), _PRICE)
    total = float(evidence[new].sum() * landed.shape[1] / len(evidence))
    if gate and (total < LEAST_EVIDENCE or new.sum() < _LEAST_IMAGES):
        new = np.zeros_like(new)
    return Orphans(known_posterior(trusted, probabilities), evidence, new, total)


def known_posterior(landed: Points, probabilities: Points) -> Points:
    """Return each image's probabilities of the known classes by both witnesses, (M, K).

    Args:
        landed: Landing of every class, (M, K).
        probabilities: Probabilities of pre-training, (M, K + 1); the last is unknown.
    """
    both = np.maximum(probabilities[:, :-1], 1e-12) * (landed + _SMALLEST)
    return np.asarray(both / both.sum(axis=1, keepdims=True), np.float32)


def novelty_evidence(landed: Points, trusted: Points, probabilities: Points) -> Points:
    """Return the evidence that each image is new, (M,), in nats from -4 to 4.

    The zero of landing is measured on the target: half-way between what the most certain images
    receive of their class and what they receive of the best other one, which is what would be left
    had their class been absent from the source.

    Args:
        landed: Landing of every class, (M, K).
        trusted: The same, reduced where the class is not similar, (M, K).
        probabilities: Probabilities of pre-training, (M, K + 1); the last is unknown.
    """
    unknown = np.clip(probabilities[:, -1], _ODDS, 1 - _ODDS)
    log_odds = np.log(unknown / (1 - unknown))
    lacking = -np.log(trusted.max(axis=1) + _FLOOR)
    without_own = -np.log(np.sort(landed, axis=1)[:, -2] + _FLOOR)
    predicted = known_posterior(trusted, probabilities).argmax(axis=1)
    certain = _certain_halves(predicted, lacking + log_odds)
    typical = [[np.median(values[half]) for half in certain] for values in (lacking, without_own)]
    zero = np.median(typical, axis=1).mean()
    evidence = _WEIGHT * (lacking - zero) + log_odds + _BIAS
    return np.asarray(np.clip(evidence, -_MOST, _MOST), np.float32)


def _certain_halves(predicted: Ids, doubt: Points) -> list[Ids]:
    """Return the rows of each large enough class's half with the least doubt, or else all rows."""
    halves = []
    for label in np.unique(predicted):
        members = np.flatnonzero(predicted == label)
        if len(members) >= _FEWEST:
            halves.append(members[np.argsort(doubt[members], kind="stable")][: len(members) // 2])
    return halves or [np.arange(len(predicted))]
