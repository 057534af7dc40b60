"""The outcome of a run, as the measures see it."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from scda.adapt.discovery.kmeans import Points
from scda.adapt.discovery.novelty.comparison import Comparison
from scda.models.index import Ids


@dataclass(frozen=True)
class Outcome:
    """Both domains, and what the final model makes of the target.

    Attributes:
        domains: Both domains as the decision sees them.
        probabilities: The final model's probabilities for the target, (M, K + k*).
    """

    domains: Comparison
    probabilities: Points

    @property
    def num_known(self) -> int:
        """Number of known classes, K."""
        return self.domains.num_known

    @property
    def near(self) -> Ids:
        """Rows of the ten nearest target images of every one, (M, 10)."""
        return self.domains.near

    @cached_property
    def predicted(self) -> Ids:
        """Output index of every target image, (M,)."""
        return np.asarray(self.probabilities.argmax(axis=1), np.int64)
