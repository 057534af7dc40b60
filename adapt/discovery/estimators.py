"""Estimators of k*, by name."""

import math
from collections.abc import Callable, Mapping

from scda.adapt.discovery.estimate import KEstimate
from scda.adapt.discovery.graph import estimate_by_graph
from scda.adapt.discovery.space import Space
from scda.adapt.discovery.sweep import estimate_by_sweep

Estimator = Callable[[Space], KEstimate]

# Every estimator is asked in every round: where they disagree, the user is told.
ESTIMATORS: dict[str, Estimator] = {
    "scda": estimate_by_sweep,
    "graph": estimate_by_graph,
}


def chosen_k(votes: Mapping[str, int], k_method: str) -> int:
    """Return the k that `k_method` takes: one estimator's, or the mean of `scda` and `graph`.

    Args:
        votes: k* by the name of its estimator.
        k_method: Name of an estimator, or `both`, whose mean is rounded up.
    """
    if k_method == "both":
        return math.ceil((votes["scda"] + votes["graph"]) / 2)
    return votes[k_method]
