from typing import Any

import numpy as np
import pytest

from scda.adapt.discovery.counting.estimate import Curve
from scda.adapt.discovery.diagnostics import (
    diagnose,
    empty_classes,
    one_sided_game,
)
from scda.adapt.discovery.discover import Discovery
from scda.adapt.discovery.findings import Finding, Status
from scda.adapt.discovery.selection import Candidates, empty_ids
from scda.adapt.discovery.trust.calibration import RISING
from scda.adapt.discovery.trust.estimate import estimate
from scda.adapt.discovery.trust.measures import MEASURES

KNOWN, EACH = 4, 10
LABELS = np.repeat(np.arange(KNOWN), EACH)
SURE = estimate({name: 0.0 if name in RISING else 1.0 for name in MEASURES})
UNSURE = estimate(dict.fromkeys(MEASURES, 0.5))
CURVE = Curve([5, 6], [2.0, 1.0], [1.0, 1.0], 5, [5], 6)


def discovery(**fields: Any) -> Discovery:
    """Return one that nothing is wrong with; fields are changed."""
    candidates = Candidates(empty_ids(), empty_ids(), np.arange(6))
    usual: dict[str, Any] = {"k_star": 3, "candidates": candidates, "curve": CURVE}
    usual |= {"implicit_labels": np.arange(6) % 3, "votes": {"scda": 3, "graph": 3}}
    usual |= {"k_path": (3, 3)}
    return Discovery(**{**usual, **fields})


def found(**fields: Any) -> list[str]:
    """Return the findings of a run that nothing is wrong with; fields are changed."""
    usual = {"predicted": LABELS, "num_known": KNOWN, "trust": SURE, "discovery": discovery()}
    return [str(line) for line in diagnose(**{**usual, **fields})]


def begin(lines: list[str], *statuses: str) -> bool:
    pairs = zip(lines, statuses, strict=True)
    return all(line.startswith(f"{status}: ") for line, status in pairs)


def test_nothing_is_found_where_all_is_well() -> None:
    assert found() == []
    assert found(discovery=None) == []
    closed = discovery(k_star=0, curve=None, votes={}, k_path=())
    assert found(discovery=closed) == []


def test_collapsed_where_nearly_all_is_predicted_as_new() -> None:
    predicted = np.where(np.arange(40) % 10 == 0, LABELS, KNOWN)  # 36 of 40 are new
    assert found(predicted=predicted) == []
    predicted[0] = KNOWN
    assert found(predicted=predicted) == [
        "collapsed: 92% of the target is predicted as new, and 3 of 4 known classes are found; "
        "check that it is the right target; if it is, label some of its images"
    ]


def test_collapsed_where_fewer_than_half_of_the_known_classes_are_found() -> None:
    assert found(predicted=LABELS % 2) == []
    lines = found(predicted=0 * LABELS)
    assert begin(lines, "collapsed")
    assert "0% of the target is predicted as new, and 1 of 4 known classes is found" in lines[0]


def test_a_run_that_is_expected_to_be_wrong_is_doubted() -> None:
    assert begin(found(trust=UNSURE), "weak transfer")
    assert begin(found(trust=UNSURE, predicted=0 * LABELS), "collapsed", "weak transfer")


@pytest.mark.parametrize(("k_scda", "k_graph"), [(3, 6), (6, 3), (1, 2), (2, 9)])
def test_k_is_unsure_where_one_estimate_is_twice_the_other(k_scda: int, k_graph: int) -> None:
    doubted = discovery(votes={"scda": k_scda, "graph": k_graph})
    assert found(discovery=doubted) == [
        f"k unsure: the estimates of k* differ: {k_scda} by scda and {k_graph} by graph; inspect "
        "the discovered classes, then set --k"
    ]


@pytest.mark.parametrize(("k_scda", "k_graph"), [(3, 5), (5, 3), (1, 1), (10, 19)])
def test_k_is_sure_where_estimates_are_closer(k_scda: int, k_graph: int) -> None:
    assert found(discovery=discovery(votes={"scda": k_scda, "graph": k_graph})) == []


@pytest.mark.parametrize(
    ("votes", "sure"),
    [((4, 5, 1), True), ((2, 1, 2), True), ((1, 6, 3), False), ((1, 2, 4), False)],
)
def test_of_three_estimates_two_have_to_agree(votes: tuple[int, ...], sure: bool) -> None:
    named = dict(zip(("accuracy", "size", "surroundings"), votes, strict=True))
    assert (found(discovery=discovery(votes=named)) == []) == sure


def test_a_given_k_is_not_doubted() -> None:
    assert found(discovery=discovery(k_star=9, curve=None, votes={}, k_path=(9, 9))) == []


@pytest.mark.parametrize("path", [(2, 4), (4, 2), (3, 3, 5), (1, 2), (7, 8, 9, 9, 9, 2)])
def test_k_is_unstable_where_the_last_two_rounds_differ_by_half(path: tuple[int, ...]) -> None:
    numbers = ", ".join(str(k_star) for k_star in path[-5:])
    assert found(discovery=discovery(k_path=path)) == [
        f"unstable k: k* was {numbers} in the last rounds; use more --rounds, or set --k"
    ]


@pytest.mark.parametrize("path", [(), (3,), (2, 3), (3, 2), (9, 1, 3, 3), (0, 0)])
def test_k_is_stable_where_the_last_two_rounds_are_close(path: tuple[int, ...]) -> None:
    assert found(discovery=discovery(k_path=path)) == []


def test_every_finding_is_one_line_that_says_what_to_do() -> None:
    doubted = discovery(k_star=1, votes={"scda": 1, "graph": 3}, k_path=(3, 1))
    lines = found(predicted=np.full(40, KNOWN), trust=UNSURE, discovery=doubted)
    assert begin(lines, "collapsed", "weak transfer", "k unsure", "unstable k")
    assert all("; " in line and "\n" not in line for line in lines)


def of_round(k_star: int, *, verdict: Finding | None = None) -> Discovery:
    candidates = Candidates(empty_ids(), empty_ids(), empty_ids())
    return Discovery(k_star, candidates, empty_ids(), verdict=verdict)


@pytest.mark.parametrize(
    ("before", "after", "what_to_change"),
    [
        (0.0, 0.009, "fewer pretrain_steps"),
        (1.0, 0.991, "more pretrain_steps"),
        (0.0, 0.02, None),  # it found its way back
        (0.02, 0.0, None),  # not yet a whole round
        (1.0, 0.98, None),
        (0.5, 0.5, None),
        (0.0, 1.0, None),
    ],
)
def test_a_game_that_one_side_wins_for_a_whole_round_is_found(
    before: float, after: float, what_to_change: str | None
) -> None:
    findings = one_sided_game(before, after, of_round(3))
    assert len(findings) == (what_to_change is not None)
    for finding in findings:
        assert finding.status is Status.GAME_COLLAPSED
        assert what_to_change is not None
        assert what_to_change in finding.advice


def test_no_image_predicted_as_new_is_no_fault_where_nothing_is_new() -> None:
    assert one_sided_game(0.0, 0.0, of_round(0)) == []
    assert len(one_sided_game(1.0, 1.0, of_round(0))) == 1


def test_classes_without_an_image_are_named() -> None:
    names = ["cat", "dog", "discovered-000"]
    assert empty_classes(np.array([0, 1, 2, 1]), names, empty_ids()) == []
    (finding,) = empty_classes(np.array([1, 1]), names, empty_ids())
    assert finding.status is Status.EMPTY_CLASS
    assert finding.found == "no target image is predicted as cat, discovered-000"


def test_classes_whose_images_do_not_resemble_them_are_named() -> None:
    names = ["cat", "dog", "discovered-000"]
    (finding,) = empty_classes(np.array([0, 1, 2]), names, np.array([1]))
    assert finding.status is Status.EMPTY_CLASS
    assert finding.found.startswith("the images predicted as dog hardly resemble")
    assert len(empty_classes(np.array([1, 1]), names, np.array([1]))) == 2


def test_many_empty_classes_are_counted() -> None:
    (finding,) = empty_classes(np.array([0]), [f"c{number}" for number in range(9)], empty_ids())
    assert finding.found.endswith(" as c1, c2, c3, c4, c5 and 3 more")
