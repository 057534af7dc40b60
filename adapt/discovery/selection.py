"""Confident target images: T_kn with known pseudo-labels, and T_im, which is clustered."""

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import log_softmax

from scda.adapt.discovery.kmeans import Points
from scda.models.index import Ids


def empty_ids() -> Ids:
    """Return an empty array of row numbers."""
    return np.empty(0, np.int64)


@dataclass(frozen=True)
class Candidates:
    """The confident target images: T_kn with known labels, T_im without."""

    known: Ids  # rows of the target, T_kn
    known_labels: Ids  # (len(known),), 0 to K - 1
    implicit: Ids  # rows of the target, T_im

    @property
    def rows(self) -> Ids:
        """Return the rows of both, those of T_kn first."""
        return np.concatenate([self.known, self.implicit])


def select(logits: Points, *, num_known: int, implicit_share: str) -> Candidates:
    """Return the lower-entropy half of every predicted class, at least one image of each.

    Args:
        logits: Logits of the target, (N, C).
        num_known: Number of known classes, K.
        implicit_share: `half` treats discovered classes like known ones; `all` takes every image
            that is predicted as new: in the first round, half of the single `unknown` pool misses
            whole classes (choice 8).

    Source: SCDA, "High-confident target candidates", Eq. 7.
    """
    predicted, entropies = logits.argmax(axis=1), entropy(logits)
    halves = [
        lower_half(np.flatnonzero(predicted == label), entropies)
        for label in range(logits.shape[1])
    ]
    known = np.sort(np.concatenate([halves[label] for label in range(num_known)]))
    new = [halves[label] for label in range(num_known, logits.shape[1])]
    implicit = np.concatenate([*new, empty_ids()])
    if implicit_share == "all":
        implicit = np.flatnonzero(predicted >= num_known)
    return Candidates(known, predicted[known], np.sort(implicit).astype(np.int64))


def select_least_certain(candidates: Candidates, logits: Points) -> Candidates:
    """Return candidates whose T_im is the tenth of the target with the highest entropy.

    Args:
        candidates: Candidates without T_im.
        logits: Logits of the target, (N, C).
    """
    tenth = np.argsort(-entropy(logits), kind="stable")[: len(logits) // 10]
    kept = ~np.isin(candidates.known, tenth)
    return Candidates(candidates.known[kept], candidates.known_labels[kept], np.sort(tenth))


def lower_half(members: Ids, entropies: Points) -> Ids:
    """Return the half of the rows `members` with the lowest entropy, rounded up."""
    order = members[np.argsort(entropies[members], kind="stable")]
    return order[: math.ceil(len(members) / 2)]


def entropy(logits: Points) -> Points:
    """Return the prediction entropy of each image in nats, (N,).

    Source: SCDA, Eq. 7.
    """
    log_probs = log_softmax(logits.astype(np.float64), axis=1)
    return np.asarray(-(np.exp(log_probs) * log_probs).sum(axis=1), np.float32)
