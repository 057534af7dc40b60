from typing import Any

import numpy as np
import pytest

from scda.adapt.config import TrainConfig
from scda.adapt.discovery.counting.estimate import Curve, KEstimate
from scda.adapt.discovery.counting.estimators import ESTIMATORS, chosen_k
from scda.adapt.discovery.counting.size import estimate_by_size
from scda.adapt.discovery.discover import discover
from scda.adapt.discovery.findings import Finding, Status
from scda.adapt.discovery.kmeans import Points
from scda.adapt.discovery.space import Space
from scda.models.index import Ids
from tests.adapt.discovery.blobs import blobs, config, toy

AT_BOUND = Finding(
    Status.K_AT_BOUND, "the number of new classes reached k_max = 8", "use a larger --k-max"
)


@pytest.fixture
def fixed(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Replace what the estimators measure: the curve of the sweep, the count of the graph."""

    def fix(curve: Curve, of_graph: int = 1) -> None:
        monkeypatch.setattr(
            "scda.adapt.discovery.counting.sweep.sweep_curve", lambda *_, **__: curve
        )
        monkeypatch.setitem(ESTIMATORS, "graph", lambda space: KEstimate(of_graph))

    return fix


def space_of(points: Points, labels: Ids, num_known: int, settings: TrainConfig) -> Space:
    return Space(points, labels, num_known, settings, points)


@pytest.mark.parametrize("name", ["scda", "graph", "accuracy", "surroundings"])
def test_every_estimator_counts_separated_groups_and_can_be_chosen(name: str) -> None:
    settings = config(k_method=name)
    space = space_of(blobs(7, width=12), np.repeat(np.arange(3), 20), 3, settings)
    assert abs(ESTIMATORS[name](space).k - 4) <= 1


@pytest.mark.parametrize("name", list(ESTIMATORS))
def test_every_estimator_counts_at_least_one_class(name: str) -> None:
    space = space_of(blobs(4)[:61], np.repeat(np.arange(3), 20), 3, config())
    assert ESTIMATORS[name](space).k >= 1


@pytest.mark.parametrize(
    ("method", "names"),
    [
        ("scda", ["scda", "graph"]),
        ("graph", ["scda", "graph"]),
        ("both", ["scda", "graph"]),
        ("accuracy", ["accuracy", "size", "surroundings"]),
        ("votes", ["accuracy", "size", "surroundings"]),
    ],
)
def test_every_vote_is_kept_by_name(method: str, names: list[str]) -> None:
    logits, features = toy(3, 2)
    found = discover(logits, features, features, num_known=3, config=config(k_method=method))
    assert list(found.votes) == names
    assert found.k_star == chosen_k(found.votes, method)


def test_the_chosen_k_is_an_estimators_or_that_of_several() -> None:
    votes = {"scda": 4, "graph": 7, "accuracy": 9, "size": 2, "surroundings": 5}
    assert [chosen_k(votes, name) for name in votes] == [4, 7, 9, 2, 5]
    assert chosen_k(votes, "both") == 6  # the mean, rounded up
    assert chosen_k(votes, "votes") == 5  # the median


def test_a_few_new_images_among_many_uncertain_known_ones_are_no_class_to_their_surroundings() -> (
    None
):
    points = blobs(6, width=12)
    points[100:, 4:6] = points[100:, [5, 4]]  # the last group joins the one before it
    space = Space(points[:95], np.repeat(np.arange(3), 20), 3, config(), points)
    assert ESTIMATORS["accuracy"](space).k == 2
    assert ESTIMATORS["surroundings"](space).k == 1


@pytest.mark.parametrize(
    ("of_classes", "num_new", "expected"),
    [([4, 4, 4], 24, 3), ([2, 10, 4], 9, 1), ([5], 20, 2), ([], 12, 1), ([8, 8], 1, 1)],
)
def test_the_vote_by_size_divides_by_the_median_class(
    of_classes: list[int], num_new: int, expected: int
) -> None:
    labels = np.repeat(np.arange(len(of_classes)), of_classes)
    space = space_of(blobs(4)[: len(labels) + num_new], labels, len(of_classes), config())
    assert estimate_by_size(space).k == expected


def curve_of(k_accuracy: int, k_elbow: int) -> Curve:
    return Curve([4, 5], [2.0, 1.0], [1.0, 1.0], k_accuracy, [k_accuracy], k_elbow)


@pytest.mark.parametrize(
    ("k_accuracy", "k_elbow", "k_star"),
    [(5, 7, 3), (5, 8, 4), (4, 4, 1), (3, 3, 1), (11, 11, 8), (12, 20, 8)],
)
def test_k_star_is_the_mean_of_both_criteria_rounded_up_within_its_bounds(
    k_accuracy: int, k_elbow: int, k_star: int, fixed: Any
) -> None:
    fixed(curve_of(k_accuracy, k_elbow))
    logits, features = toy(3, 5)
    settings = config(k_max=8, k_method="scda")
    found = discover(logits, features, features, num_known=3, config=settings)
    assert found.k_star == k_star
    assert found.findings == ((AT_BOUND,) if k_star == 8 else ())


@pytest.mark.parametrize(
    ("method", "of_graph", "k_star"),
    [
        ("scda", 6, 4),
        ("graph", 6, 6),
        ("both", 6, 5),
        ("both", 3, 4),  # rounded up
        ("both", 1, 3),
        ("graph", 1, 1),
        ("graph", 30, 8),
        ("both", 30, 8),
    ],
)
def test_k_method_says_whose_count_is_taken(
    method: str, of_graph: int, k_star: int, fixed: Any
) -> None:
    fixed(curve_of(5, 8), of_graph)  # 7 - 3 by the sweep
    logits, features = toy(3, 5)
    settings = config(k_max=8, k_method=method)
    found = discover(logits, features, features, num_known=3, config=settings)
    assert (found.k_star, found.votes["graph"], found.curve) == (k_star, of_graph, curve_of(5, 8))
    assert found.findings == ((AT_BOUND,) if k_star == 8 else ())


def test_a_sweep_that_ended_too_soon_is_a_finding_whatever_the_graph_says(fixed: Any) -> None:
    fixed(curve_of(12, 12), 5)
    logits, features = toy(3, 5)
    settings = config(k_max=8, k_method="both")
    found = discover(logits, features, features, num_known=3, config=settings)
    assert found.k_star == 7
    assert found.findings == (AT_BOUND,)


@pytest.mark.parametrize("method", ["scda", "graph", "both"])
def test_every_method_counts_separated_groups(method: str) -> None:
    features = blobs(7, width=12)
    logits, _ = toy(3, 4)
    settings = config(k_method=method)
    found = discover(logits, features, features, num_known=3, config=settings)
    assert abs(found.k_star - 4) <= 1
    assert found.votes["graph"] == 4
