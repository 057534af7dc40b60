"""Source and target as the decision about new classes sees them, and what follows from that alone.

The decision and the measures of trust ask the same of both domains: which images are neighbours,
and where the known classes land. In a large target that takes most of their time, so that it is
computed once.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Self

from scipy.sparse import csr_array

from scda.adapt.discovery.kmeans import Points
from scda.adapt.discovery.large import LARGE
from scda.adapt.discovery.neighbours import NEIGHBOURS, nearest_others
from scda.adapt.discovery.novelty.landing import believed, class_centres, landing, similarity
from scda.adapt.discovery.propagation import neighbour_graph
from scda.models.index import Ids


@dataclass(frozen=True, eq=False)
class Comparison:
    """Both domains in one space; everything else is computed when it is asked for, and kept.

    Attributes:
        source: Points of the source, of length 1, (N, D).
        labels: Labels of the source, (N,), 0 to K - 1.
        target: Points of the target, of length 1, (M, D).
    """

    source: Points
    labels: Ids
    target: Points

    def with_source(self, source: Points, labels: Ids) -> Self:
        """Return the comparison of another source with the same target."""
        other = type(self)(source, labels, self.target)
        other.__dict__.update(near=self.near, graph=self.graph)
        return other

    @property
    def num_known(self) -> int:
        """Number of known classes, K."""
        return int(self.labels.max()) + 1

    @cached_property
    def near(self) -> Ids:
        """Rows of the ten nearest target images of every one, nearest first, (M, 10)."""
        return nearest_others(self.target, NEIGHBOURS)

    @cached_property
    def graph(self) -> csr_array:
        """The neighbour graph of the target, (M, M)."""
        # The nearest five of ten are those of a search for five, but for rounding; to search again
        # takes long in a large target alone.
        return neighbour_graph(self.target, self.near if len(self.target) > LARGE else None)

    @cached_property
    def centres(self) -> Points:
        """The direction of every known class's mean in the source, (K, D)."""
        return class_centres(self.source, self.labels)

    @cached_property
    def landed(self) -> Points:
        """How much of every known class lands on every target image, (M, K)."""
        return landing(self.source, self.labels, self.target, self.graph)

    @cached_property
    def trusted(self) -> Points:
        """The same, reduced where the image does not resemble the class, (M, K)."""
        return believed(self.landed, similarity(self.centres, self.target, self.graph))
