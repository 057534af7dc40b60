"""Which class of an earlier model each new class is, from images in common and from centroids.

O classes of the earlier model, N classes of the new one. A class that people merged into another
votes with it: the two are one class.
"""

from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from scda.adapt.discovery.kmeans import Points
from scda.models.index import Ids

T = TypeVar("T", Ids, NDArray[np.float64])

# Measured on Office-31 (benchmarks/results/after.md).
OVERLAP = 0.55  # least overlap of two classes in their images in common
RIVAL = 0.8  # largest overlap of another earlier class, relative to it
SEEN = 0.55  # least share of images in common in a class, relative to that of the whole target
SIMILARITY = 0.8  # least cosine of two centroids, where there are few images in common
PART = 0.75  # least share of a part's images in common that the class had which it is a part of
_LIKE_WHOLE = 0.72  # least cosine of the centroids of a part and of that class


@dataclass(frozen=True)
class Evidence:
    """What speaks for a class of the earlier model being a class of the new one."""

    shared: Ids  # (O, N), images in common that had the one class and have the other
    sizes: Ids  # (N,), images of every new class
    similarity: Points  # (O, N), cosine of the centroids; 0 where they cannot be compared
    answers: Ids  # (O,), the class that each earlier class was merged into, or itself

    @property
    def votes(self) -> Ids:
        """The images in common by the class that answered for them, (O, N)."""
        return _by_answer(np.add, self.shared, self.answers)

    @property
    def is_seen(self) -> NDArray[np.bool_]:
        """Whether a new class has enough images in common to be judged by them, (N,)."""
        whole = self.shared.sum() / max(1, self.sizes.sum())
        of_class = self.shared.sum(axis=0) / np.maximum(1, self.sizes)
        return np.asarray((of_class > 0) & (of_class >= SEEN * whole))


def match_classes(evidence: Evidence, old: NDArray[np.bool_], new: NDArray[np.bool_]) -> Ids:
    """Return the earlier class that each new class is, (N,), one to one; -1 for none.

    The overlap of two classes is the number of images that are in both, over the mean number of
    images in common of either. A new class is the earlier class that it overlaps most, if that is
    `OVERLAP` or more and no class of another name comes near it. Where classes were merged, the one
    that answers for them is found again first, if need be as all of them together. A class with few
    images in common is the earlier class with the most similar centroid, if each is the other's
    most similar one.

    Args:
        evidence: Images in common, and similarities.
        old: Whether an earlier class can be found again, (O,).
        new: Whether a new class can be one of them, (N,).

    Source: Dice 1945 (the overlap).
    """
    alone, together = _overlap(evidence.shared), _overlap(evidence.votes)
    owners = _owners(evidence, np.maximum(alone, together))
    found = np.full(len(new), -1, np.int64)
    for owner in np.unique(owners[(owners >= 0) & new]):
        claims = np.flatnonzero((owners == owner) & new)
        parts = np.flatnonzero((evidence.answers == owner) & old)
        pairs = [(alone[part, claim], part, claim) for part in parts for claim in claims]
        for overlap, part, claim in sorted(pairs, key=lambda pair: -pair[0]):
            if overlap >= OVERLAP and found[claim] < 0 and part not in found:
                found[claim] = part
        best = claims[together[owner, claims].argmax()]
        if owner in parts and owner not in found and together[owner, best] >= OVERLAP:
            found[best] = owner
    return _match_unseen(evidence, old, new & ~evidence.is_seen, found)


def match_parts(evidence: Evidence, matched: Ids, named: NDArray[np.bool_]) -> Ids:
    """Return the earlier class of which each new class is a part, (N,); -1 for none.

    A part is found no more as that class itself, but nearly all of its images in common were that
    class, and it looks alike: what was a mixture separates into classes that do not.

    Args:
        evidence: Images in common, and similarities.
        matched: The earlier class that each new class is, (N,); -1 for none.
        named: Whether an earlier class can have parts, (O,): it has a name and is found again.
    """
    votes = np.where(named[:, None], evidence.votes, 0)
    whole, columns = votes.argmax(axis=0), np.arange(len(matched))
    share = votes[whole, columns] / np.maximum(1, evidence.shared.sum(axis=0))
    alike = evidence.similarity[whole, columns] >= _LIKE_WHOLE
    is_part = (matched < 0) & evidence.is_seen & (share >= PART) & alike
    return np.where(is_part, whole, -1)


def match_vanished(similarity: Points, nearest: Points, new: NDArray[np.bool_]) -> dict[int, int]:
    """Return new class → vanished class that it is, one to one.

    Each is the other's most similar one, and more so than any class of the earlier model.

    Args:
        similarity: Cosines of the centroids of vanished and of new classes, (V, N).
        nearest: The largest cosine of each new class with a class of the earlier model, (N,).
        new: Whether a new class can be one of them, (N,).
    """
    found = {}
    for one, row in enumerate(similarity):
        best = int(row.argmax())
        likeness = similarity[:, best]
        is_mutual = likeness.argmax() == one and likeness[one] >= max(SIMILARITY, nearest[best])
        if new[best] and is_mutual:
            found[best] = one
    return found


def _overlap(images: Ids) -> NDArray[np.float64]:
    """Return the overlap of every pair of classes, (O, N), 0 to 1."""
    both = images.sum(axis=1, keepdims=True) + images.sum(axis=0)
    return np.asarray(2 * images / np.maximum(1, both))


def _owners(evidence: Evidence, overlap: NDArray[np.float64]) -> Ids:
    """Return the class that answers for what each new class overlaps most, (N,), or -1."""
    strength = _by_answer(np.maximum, overlap, evidence.answers)
    rivals = np.sort(strength, axis=0)[-2] if len(strength) > 1 else 0
    first = strength.max(axis=0)
    is_sure = evidence.is_seen & (first >= OVERLAP) & (rivals <= RIVAL * first)
    return np.where(is_sure, strength.argmax(axis=0), -1)


def _by_answer(join: np.ufunc, table: T, answers: Ids) -> T:
    """Return a table (O, N) with the rows of merged classes joined in the one that answers."""
    joined = np.zeros_like(table)
    join.at(joined, answers, table)
    return joined


def _match_unseen(
    evidence: Evidence, old: NDArray[np.bool_], new: NDArray[np.bool_], found: Ids
) -> Ids:
    """Match by centroids what is left: new classes with few images in common."""
    found = found.copy()
    free_old, free_new = old & ~np.isin(np.arange(len(old)), found), new & (found < 0)
    if not free_old.any() or not free_new.any():
        return found
    # Classes that are taken take part: what resembles one of them most is none of the others.
    nearest_new = evidence.similarity.argmax(axis=1)
    for claim in np.flatnonzero(free_new):
        likeness = evidence.similarity[:, claim]
        best = int(likeness.argmax())
        if free_old[best] and nearest_new[best] == claim and likeness[best] >= SIMILARITY:
            found[claim] = best
    return found
