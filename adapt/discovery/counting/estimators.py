"""Estimators of k*, by name."""

import math
from collections.abc import Callable, Mapping

from scda.adapt.discovery.counting.accuracy import estimate_by_accuracy
from scda.adapt.discovery.counting.estimate import KEstimate
from scda.adapt.discovery.counting.graph import estimate_by_graph
from scda.adapt.discovery.counting.size import estimate_by_size
from scda.adapt.discovery.counting.sweep import estimate_by_sweep
from scda.adapt.discovery.space import Space

Estimator = Callable[[Space], KEstimate]

ESTIMATORS: dict[str, Estimator] = {
    "scda": estimate_by_sweep,
    "graph": estimate_by_graph,
    "accuracy": estimate_by_accuracy,
    "size": estimate_by_size,
}
_VOTES = ("accuracy", "size")
_FIRST = ("scda", "graph")


def voting_estimators(k_method: str) -> dict[str, Estimator]:
    """Return the estimators that vote in every round: where they disagree, the user is warned.

    Args:
        k_method: `accuracy`, `size` or `votes` for these two; `scda`, `graph` or `both` for those.
    """
    names = _FIRST if k_method in (*_FIRST, "both") else _VOTES
    return {name: ESTIMATORS[name] for name in names}


def chosen_k(votes: Mapping[str, int], k_method: str) -> int:
    """Return the k that `k_method` takes: one estimator's, or the mean of two.

    Args:
        votes: k* by the name of its estimator.
        k_method: Name of an estimator; `both` for the mean of `scda` and `graph`, rounded up; or
            `votes` for the mean of `accuracy` and `size`, rounded.
    """
    if k_method == "both":
        return math.ceil((votes["scda"] + votes["graph"]) / 2)
    if k_method == "votes":
        return round((votes["accuracy"] + votes["size"]) / 2)
    return votes[k_method]
