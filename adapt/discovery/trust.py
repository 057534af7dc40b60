"""What the user should know of a run before they rely on it: the statuses, each with what to do."""

import numpy as np

from scda.adapt.discovery.discover import Discovery
from scda.adapt.discovery.kmeans import Points
from scda.models.index import Ids, normalised

# Chosen on Office-31, protocol P1 and its treated images; docs/method.md says how well they hold.
LEAST_RESEMBLANCE = 0.7
_MOST_NEW = 0.9  # of the target
_UNSURE = 2  # times that one estimate of k* is the other
_SHOWN = 5  # rounds, of hundreds perhaps
_UNSTABLE = 1.5  # times that k* of one round is that of another


def warnings(
    *,
    source: Points,
    source_labels: Ids,
    target: Points,
    predicted: Ids,
    num_known: int,
    discovery: Discovery | None,
) -> list[str]:
    """Return one line `status: what was found; what to do` for everything that is not as it should.

    Args:
        source: (N, D_backbone) features.
        source_labels: (N,), 0 to K - 1.
        target: (M, D_backbone) features.
        predicted: (M,), of the last round.
        num_known: K.
        discovery: Of the last round.
    """
    return [
        *_collapse(predicted, num_known),
        *_weak_transfer(resemblance(source, source_labels, target, predicted, num_known)),
        *(_doubts_about_k(discovery) if discovery else []),
    ]


def resemblance(
    source: Points, source_labels: Ids, target: Points, predicted: Ids, num_known: int
) -> float:
    """Return how much target images resemble their class, where source images are 1.

    That is the mean cosine to the class's centre in the source, of target images that are called
    known, over the same of the source images. 0 if no image is called known.
    """
    points, others = normalised(source), normalised(target)
    centres = normalised(
        np.stack([points[source_labels == label].mean(axis=0) for label in range(num_known)])
    )
    called_known = predicted < num_known
    if not called_known.any():
        return 0.0
    own = np.einsum("nd,nd->n", points, centres[source_labels]).mean()
    of_target = np.einsum("nd,nd->n", others[called_known], centres[predicted[called_known]])
    return float(of_target.mean() / own)


def _collapse(predicted: Ids, num_known: int) -> list[str]:
    share = float((predicted >= num_known).mean())
    found = len(np.unique(predicted[predicted < num_known]))
    if share <= _MOST_NEW and 2 * found >= num_known:
        return []
    return [
        f"collapsed: {share:.0%} of the target are called new and {found} of {num_known} known "
        "classes found; is it the right target? if the known classes are there, label some of it"
    ]


def _weak_transfer(found: float) -> list[str]:
    if found >= LEAST_RESEMBLANCE:
        return []
    return [
        f"weak transfer: images called known resemble their class {found:.2f} times as much as "
        f"source images do, want {LEAST_RESEMBLANCE}; check known classes in the report, or use "
        "another backbone"
    ]


def _doubts_about_k(discovery: Discovery) -> list[str]:
    doubts, path = [], discovery.k_path
    if discovery.k_scda and discovery.k_graph:
        low, high = sorted((discovery.k_scda, discovery.k_graph))
        if high >= _UNSURE * low:
            doubts.append(
                f"k unsure: {discovery.k_scda} new classes by Algorithm 1, {discovery.k_graph} by "
                "the graph; look at the discovered classes, then fix --k"
            )
    if len(path) > 1 and max(path[-2:]) > _UNSTABLE * min(path[-2:]):
        rounds = ", ".join(map(str, path[-_SHOWN:]))
        doubts.append(f"unstable k: k* went {rounds} in the last rounds; more --rounds, or fix --k")
    return doubts
