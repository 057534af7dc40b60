"""Grain: how finely the target may be divided, where the source shows that classes touch.

Communities depend on their resolution. As a rule, the known classes that are found in the target
set it; but a community of classes that touch then passes for one class. The source, whose classes
are known, shows whether classes touch, and at which resolution they are apart and still whole.
"""

from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array

from scda.adapt.discovery.communities import communities, shared_neighbours, thinned_rows
from scda.adapt.discovery.kmeans import Points
from scda.adapt.discovery.matching import clustering_accuracy
from scda.adapt.discovery.novelty.landing import class_centres
from scda.models.index import Ids

_TOUCHING = 0.85  # cosine of two classes' centres from which on they touch
_SHARE = 0.9  # quantile over classes of how alike a class is to the next one
_RESOLUTIONS = np.geomspace(1, 40, 12)
_WHOLE = 0.02  # of the best clustering accuracy, that whole classes may lack
_BROKEN = 0.1  # that finer communities will not make up for


@dataclass(frozen=True)
class Grain:
    """What the classes of a source that touch show."""

    likeness: float  # cosine of the centres of classes that touch
    per_edge: float  # resolution at which classes are whole, over the total weight of the graph

    def communities(self, graph: csr_array) -> Ids:
        """Return the communities of a graph, (N,), as fine as those of the source are whole.

        Twice as many classes of that size have twice the weight, and need twice the resolution.
        """
        return communities(graph, self.per_edge * float(graph.sum()))


def grain_of(source: Points, labels: Ids) -> Grain | None:
    """Return the grain of a source, or None where hardly any of its classes touch.

    Args:
        source: Points of the source, of length 1, (N, D).
        labels: Labels of the source, (N,), 0 to K - 1.
    """
    alike = likeness(class_centres(source, labels))
    rows = thinned_rows(len(source))
    graph = shared_neighbours(source[rows]) if alike >= _TOUCHING else None
    if graph is None or not graph.nnz:
        return None
    return Grain(alike, _finest(graph, labels[rows]) / float(graph.sum()))


def likeness(centres: Points) -> float:
    """Return how alike, as a cosine, classes that touch are; low where hardly any do.

    Args:
        centres: Centres of the classes, of length 1, (K, D).
    """
    cosines = centres @ centres.T
    np.fill_diagonal(cosines, -1)  # also where there is no other class
    return float(np.quantile(cosines.max(axis=1), _SHARE))


def _finest(graph: csr_array, labels: Ids) -> float:
    """Return the largest resolution that finds the classes nearly as well as the best one."""
    scores: list[float] = []
    for resolution in _RESOLUTIONS:
        scores.append(clustering_accuracy(communities(graph, float(resolution)), labels))
        if scores[-1] < max(scores) - _BROKEN:
            break
    whole = np.flatnonzero(np.array(scores) >= max(scores) - _WHOLE)
    return float(_RESOLUTIONS[whole[-1]])
