"""Estimators of k*, by name."""

import math
import statistics
from collections.abc import Callable, Mapping

from scda.adapt.discovery.counting.accuracy import estimate_by_accuracy
from scda.adapt.discovery.counting.estimate import KEstimate
from scda.adapt.discovery.counting.graph import estimate_by_graph
from scda.adapt.discovery.counting.size import estimate_by_size
from scda.adapt.discovery.counting.surroundings import estimate_by_surroundings
from scda.adapt.discovery.counting.sweep import estimate_by_sweep
from scda.adapt.discovery.space import Space

Estimator = Callable[[Space], KEstimate]

ESTIMATORS: dict[str, Estimator] = {
    "scda": estimate_by_sweep,
    "graph": estimate_by_graph,
    "accuracy": estimate_by_accuracy,
    "size": estimate_by_size,
    "surroundings": estimate_by_surroundings,
}
_VOTES = ("accuracy", "size", "surroundings")
_FIRST = ("scda", "graph")


def voting_estimators(k_method: str) -> dict[str, Estimator]:
    """Return the estimators that vote in every round: where they disagree, the user is warned.

    Args:
        k_method: `accuracy`, `size`, `surroundings` or `votes` for these three; `scda`, `graph` or
            `both` for those two.
    """
    names = _FIRST if k_method in (*_FIRST, "both") else _VOTES
    return {name: ESTIMATORS[name] for name in names}


def chosen_k(votes: Mapping[str, int], k_method: str) -> int:
    """Return the k that `k_method` takes: one estimator's, or that of several together.

    Args:
        votes: k* by the name of its estimator.
        k_method: Name of an estimator; `both` for the mean of `scda` and `graph`, rounded up; or
            `votes` for the median of `accuracy`, `size` and `surroundings`.
    """
    if k_method == "both":
        return math.ceil((votes["scda"] + votes["graph"]) / 2)
    if k_method == "votes":
        return statistics.median_low(votes[name] for name in _VOTES)
    return votes[k_method]
