"""Whether anything is new in the target, and which images: one decision from three witnesses.

*Landing* needs no training and sees few new classes, but misleads where the domains lie far apart.
*p(unknown)* of pre-training is trained on the whole target and knows better where much is new.
*Remoteness* from the known classes within the target has no domain gap to cross. Their evidence is
added, as odds multiply. A random walk through the target's neighbours then decides: an image is new
if walks from it end among new images more often than among those of any one known class. So images
of a known class that resemble no source image come home to their class. Too little evidence in all
is nothing new.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit, softmax

from scda.adapt.discovery.grain import Grain
from scda.adapt.discovery.kmeans import Points
from scda.adapt.discovery.novelty.certain import best_two, certain_halves, typical
from scda.adapt.discovery.novelty.comparison import Comparison
from scda.adapt.discovery.novelty.places import class_places, remoteness
from scda.adapt.discovery.novelty.touching import beside_known
from scda.adapt.discovery.novelty.walk import walk
from scda.models.index import Ids

# Chosen on the development suite; docs/method.md says how well they hold.
LEAST_EVIDENCE = 2.8  # nats times the images of a usual known class; less in all is nothing
LEAST_IMAGES = 3  # that form a class
_FLOOR = 0.03  # of a landing, where an image of the class has about 1
_MOST = 4.0  # nats of evidence that one image gives
_REACH = 0.7  # of the walk
_SMALLEST = 1e-6
_LEAST = 0.1  # nats of evidence of an image of a group beside its class
_ODDS = 1 / 400  # p(unknown) is kept this far from 0 and 1


@dataclass(frozen=True)
class Orphans:
    """The decision about every target image."""

    posterior: Points  # (M, K) probabilities of the known classes, by landing and pre-training
    evidence: Points  # (M,) nats; positive for new
    new: NDArray[np.bool_]  # (M,)
    total: float  # evidence of all new images per image of a usual known class, before the gate

    @property
    def why_not(self) -> str:
        """What was found and expected, where too little of it means that nothing is new."""
        if self.total < LEAST_EVIDENCE:
            return (
                f"the evidence for images of new classes is {self.total:.2f} "
                f"(expected at least {LEAST_EVIDENCE})"
            )
        count = int((self.evidence > 0).sum())
        return f"{count} target images look new (expected at least {LEAST_IMAGES} in a class)"

    @property
    def known_logits(self) -> Points:
        """Log-probabilities of the known classes, (M, K), also of images that are new."""
        return np.asarray(np.log(np.maximum(self.posterior, 1e-12)), np.float32)

    @property
    def logits(self) -> Points:
        """The decision as log-probabilities, (M, K + 1); the last output is new."""
        known = self.posterior * ~self.new[:, None]
        probabilities = np.hstack([known, self.new[:, None]])
        return np.asarray(np.log(np.maximum(probabilities, 1e-12)), np.float32)


def find_orphans(
    domains: Comparison,
    logits: Points,
    *,
    gate: bool,
    given: Ids | None = None,
    grain: Grain | None = None,
) -> Orphans:
    """Return which target images are new.

    Args:
        domains: Both domains in the space of the decision.
        logits: Propagated logits of pre-training, (M, K + 1); the last output is unknown.
        gate: Whether too little evidence in all means that nothing is new.
        given: Output of every labelled image, K for one of a new class, and -1 for others, (M,);
            None for none.
        grain: What classes of the source that touch show; None where they do not touch.
    """
    probabilities = softmax(logits.astype(np.float64), axis=1)
    landed, trusted, centres = domains.landed, domains.trusted, domains.centres
    num_known, target = domains.num_known, domains.target
    posterior = _settled(known_posterior(trusted, probabilities), given)
    log_odds = logit(np.clip(probabilities[:, -1], _ODDS, 1 - _ODDS))
    lacking, lacking_own = _lacking(trusted.max(axis=1)), _lacking(best_two(landed)[1])
    certain = certain_halves(posterior.argmax(axis=1), lacking + log_odds)
    # The zero of landing lies half-way between what certain images lack of their class and what
    # they lack of the next one, which is what would be left had their class been unknown.
    zero = (typical(lacking, certain) + typical(lacking_own, certain)) / 2
    evidence = _bounded(log_odds + lacking - zero, given, num_known)
    places = class_places(target, posterior, evidence, certain)
    remote = remoteness(places, centres, target, domains.graph, certain)
    evidence = _bounded(log_odds + lacking - zero + remote, given, num_known)
    evidence = walked(posterior, evidence, domains.near)
    evidence = _bounded(evidence, given, num_known)
    new = evidence > 0
    if grain:
        beside = beside_known(centres, target, posterior.argmax(axis=1), new, grain)
        evidence = _bounded(np.where(beside, _LEAST, evidence), given, num_known)
        new = evidence > 0
    total = float(evidence[new].sum() / _usual_size(posterior[~new].argmax(axis=1)))
    if gate and (total < LEAST_EVIDENCE or new.sum() < LEAST_IMAGES):
        new = np.zeros_like(new)
    return Orphans(posterior, evidence, new, total)


def known_posterior(landed: Points, probabilities: Points) -> Points:
    """Return each image's probabilities of the known classes by landing and pre-training, (M, K).

    Args:
        landed: Landing of every class, (M, K).
        probabilities: Probabilities of pre-training, (M, K + 1); the last is unknown.
    """
    both = np.maximum(probabilities[:, :-1], 1e-12) * (landed + _SMALLEST)
    return np.asarray(both / both.sum(axis=1, keepdims=True), np.float32)


def walked(posterior: Points, evidence: Points, near: Ids) -> Points:
    """Return the evidence that images are new after a random walk, (M,), in nats from -4 to 4.

    It is the logarithm of how often walks from an image end among new images, over how often they
    end among images of the known class that they end among most.

    Args:
        posterior: Probabilities of the known classes, (M, K).
        evidence: Evidence of every image by itself, (M,), in nats.
        near: Rows of the nearest neighbours, (M, n).
    """
    unknown = expit(evidence)[:, None]
    ends = np.maximum(
        walk(np.hstack([posterior * (1 - unknown), unknown]), near, _REACH), _SMALLEST
    )
    ratio = np.log(ends[:, -1] / ends[:, :-1].max(axis=1))
    return np.asarray(np.clip(ratio, -_MOST, _MOST), np.float32)


def _settled(posterior: Points, given: Ids | None) -> Points:
    """Return the probabilities of the known classes with those of labelled images certain."""
    if given is not None:
        rows = np.flatnonzero((given >= 0) & (given < posterior.shape[1]))
        posterior[rows] = np.eye(posterior.shape[1], dtype=np.float32)[given[rows]]
    return posterior


def _bounded(evidence: Points, given: Ids | None, num_known: int) -> Points:
    """Return evidence from -4 to 4 nats; that of labelled images is one of these."""
    bounded = np.clip(evidence, -_MOST, _MOST)
    if given is not None:
        bounded[given >= 0] = np.where(given[given >= 0] < num_known, -_MOST, _MOST)
    return bounded


def _lacking(landed: Points) -> Points:
    """Return how much of a landing is lacking, in nats."""
    return np.asarray(-np.log(landed + _FLOOR), np.float32)


def _usual_size(predicted: Ids) -> float:
    """Return the median size of the classes that are predicted, 1 or more."""
    sizes = np.bincount(predicted)
    return float(np.median(sizes[sizes > 0])) if sizes.any() else 1.0
