"""The constants of trust, fitted on the development suite.

`python -m benchmarks.suite --leave-one-family-out` prints them anew, and says how well constants
that were fitted on all other families of data do on each family.
"""

from collections.abc import Mapping
from dataclasses import dataclass

# In a run without a fault the shares are 1, or 0 for those named here.
RISING = frozenset({"border", "landed_on_new"})


@dataclass(frozen=True)
class Line:
    """Expected error as a sum of signs of error; no weight is negative."""

    base: float  # error without any sign
    weights: Mapping[str, float]  # by the name of a measure

    def error(self, measures: Mapping[str, float]) -> float:
        """Return the expected error, 0 to 1."""
        signs = sum(weight * sign(name, measures[name]) for name, weight in self.weights.items())
        return min(1.0, max(0.0, self.base + signs))


def sign(name: str, value: float) -> float:
    """Return a measure as a sign of error, which rises with it; a share's is 0 without a fault."""
    return value if name in RISING else 1 - value


# The share of images of known classes that are wrong. The base was fitted as 0; a hundredth keeps
# a run without any sign from being expected to be without error.
KNOWN_ERROR = Line(
    0.01, {"nearest_called_known": 0.39, "border": 1.72, "prototype_agreement": 0.98}
)
# Nine of ten runs lie within this many square roots of the expected error around it.
WIDTH = 0.22
# 1 - HOS, or 1 - OS* where nothing is new: with the new images, too.
ERROR = Line(0.008, {"nearest_called_known": 0.56, "border": 1.37, "landing_agreement": 0.42})
DOUBTFUL = 0.136  # a run is doubtful from this error on: one in ten good runs
WEAK = 0.4  # from this error on known images on, the transfer is weak; not fitted

# Where neither the nearest source images nor the class means agree with the model on what it calls
# known, the sums see too little: a target without any known class may look consistent. Of the good
# runs, 9 in 10 agree to 0.9 or more, targets without known classes to 0.7.
AGREEING = 0.85
_PER_POINT = 4.0  # error for the agreement that is lacking


def contradiction(measures: Mapping[str, float]) -> float:
    """Return the error, 0 to 1, that is expected at least since the source contradicts the model.

    It is 0 where the mean of `knn_agreement` and `prototype_agreement` is as high as in good runs.
    """
    agreement = (measures["knn_agreement"] + measures["prototype_agreement"]) / 2
    return min(1.0, _PER_POINT * max(0.0, AGREEING - agreement))
