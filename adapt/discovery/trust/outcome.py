"""The outcome of a run, as the measures see it."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.sparse import csr_array

from scda.adapt.discovery.kmeans import Points
from scda.adapt.discovery.neighbours import NEIGHBOURS, nearest_others
from scda.adapt.discovery.novelty.landing import believed, class_centres, landing, similarity
from scda.adapt.discovery.propagation import neighbour_graph
from scda.models.index import Ids


@dataclass(frozen=True)
class Outcome:
    """Both domains, and what the final model makes of the target.

    Attributes:
        source: Points of the source that the decision was made on, of length 1, (N, D).
        labels: Labels of the source, (N,), 0 to K - 1.
        target: Points of the target, the same, (M, D).
        probabilities: The final model's probabilities for the target, (M, K + k*).
    """

    source: Points
    labels: Ids
    target: Points
    probabilities: Points

    @property
    def num_known(self) -> int:
        """Number of known classes, K."""
        return int(self.labels.max()) + 1

    @cached_property
    def predicted(self) -> Ids:
        """Output index of every target image, (M,)."""
        return np.asarray(self.probabilities.argmax(axis=1), np.int64)

    @cached_property
    def near(self) -> Ids:
        """Rows of the ten nearest target images of every one, (M, 10)."""
        return nearest_others(self.target, NEIGHBOURS)

    @cached_property
    def centres(self) -> Points:
        """The direction of every known class's mean in the source, (K, D)."""
        return class_centres(self.source, self.labels)

    @cached_property
    def landed(self) -> Points:
        """How much of every known class lands on every target image, (M, K)."""
        return landing(self.source, self.labels, self.target, self._graph)

    @cached_property
    def trusted(self) -> Points:
        """The same, reduced where the image does not resemble the class, (M, K)."""
        alike = similarity(self.centres, self.target, self._graph)
        return believed(self.landed, alike)

    @cached_property
    def _graph(self) -> csr_array:
        return neighbour_graph(self.target)
