import logging
import math
from itertools import permutations
from typing import Any

import numpy as np
import pytest
from kneed import KneeLocator
from numpy.typing import NDArray

from scda.adapt.config import TrainConfig
from scda.adapt.discovery.discover import (
    Candidates,
    Discovery,
    cluster_candidates,
    cluster_space,
    discover,
    entropy,
    lower_half,
    match_to_previous,
    select,
)
from scda.adapt.discovery.findings import Finding, Status
from scda.adapt.discovery.kmeans import Points, cluster, sweep
from scda.adapt.discovery.sweep import (
    Curve,
    clustering_accuracy,
    contingency,
    elbow,
    k_hat,
    sweep_curve,
)
from scda.models.index import Ids

AT_BOUND = Finding(
    Status.K_AT_BOUND, "the number of new classes reached k_max = 8", "use a larger --k-max"
)


def config(**fields: Any) -> TrainConfig:
    return TrainConfig(**{"restarts": 2, "k_max": 8, **fields})


def blobs(count: int, *, each: int = 20, width: int = 8, spread: float = 0.3) -> Points:
    """Return `count` far-apart groups of images, one after the other."""
    rng = np.random.default_rng(0)
    centres = np.eye(width, dtype=np.float32)[:count] * 10
    noise = rng.normal(0, spread, (count * each, width)).astype(np.float32)
    return np.repeat(centres, each, axis=0) + noise


def logits_of(labels: list[int], outputs: int, *, certainty: float = 5.0) -> Points:
    """Return logits that predict `labels`, all but the first few of a class more certainly."""
    rng = np.random.default_rng(0)
    logits = rng.normal(0, 0.1, (len(labels), outputs)).astype(np.float32)
    logits[np.arange(len(labels)), labels] += certainty
    return logits


def toy(known: int, new: int, *, each: int = 20) -> tuple[Points, Points]:
    """Return logits and features of a target with `known` known and `new` new classes."""
    labels = [min(group, known) for group in range(known + new) for _ in range(each)]
    return logits_of(labels, known + 1), blobs(known + new, each=each)


def discovery(implicit: list[int], labels: list[int], k_star: int) -> Discovery:
    nothing = np.empty(0, np.int64)
    return Discovery(
        k_star, Candidates(nothing, nothing, np.array(implicit)), np.array(labels), None
    )


def votes(k_accuracy: int, k_elbow: int) -> Curve:
    return Curve([4, 5], [2.0, 1.0], [1.0, 1.0], k_accuracy, [k_accuracy], k_elbow)


def select_by_hand(logits: list[list[float]], known: int, share: str) -> tuple[set[int], set[int]]:
    groups: dict[int, list[tuple[float, int]]] = {}
    for i, row in enumerate(logits):
        exps = [math.exp(value) for value in row]
        probabilities = [value / sum(exps) for value in exps]
        spread = -sum(p * math.log(p) for p in probabilities)
        groups.setdefault(row.index(max(row)), []).append((spread, i))
    chosen: tuple[set[int], set[int]] = (set(), set())
    for label, members in groups.items():
        half = len(members) // 2 + len(members) % 2
        if label >= known and share == "all":
            half = len(members)
        chosen[label >= known].update(i for _, i in sorted(members)[:half])
    return chosen


def accuracy_by_hand(clusters: list[int], labels: list[int]) -> float:
    size = max(*clusters, *labels) + 1
    return max(
        sum(label == names[c] for c, label in zip(clusters, labels, strict=True)) / len(labels)
        for names in permutations(range(size))
    )


@pytest.mark.parametrize("share", ["half", "all"])
@pytest.mark.parametrize("seed", range(5))
def test_select_takes_the_lower_entropy_half_of_every_class(seed: int, share: str) -> None:
    rng = np.random.default_rng(seed)
    logits = rng.normal(0, 2, (int(rng.integers(3, 40)), 6)).astype(np.float32)
    known, implicit = select_by_hand(logits.tolist(), 4, share)
    candidates = select(logits, num_known=4, implicit_share=share)
    assert candidates.known.tolist() == sorted(known)
    assert candidates.implicit.tolist() == sorted(implicit)
    assert candidates.known_labels.tolist() == logits.argmax(axis=1)[candidates.known].tolist()


def test_select_takes_half_rounded_up_and_at_least_one() -> None:
    labels = [0] + [1] * 5 + [2] * 4 + [3] * 3
    candidates = select(logits_of(labels, 4), num_known=2, implicit_share="half")
    assert np.bincount(candidates.known_labels).tolist() == [1, 3]
    assert len(candidates.implicit) == 2 + 2  # of each discovered class


def test_all_takes_every_image_called_new_and_half_of_the_known() -> None:
    labels = [0] * 4 + [2] * 3 + [3] * 2
    candidates = select(logits_of(labels, 4), num_known=2, implicit_share="all")
    assert len(candidates.known) == 2
    assert candidates.implicit.tolist() == [4, 5, 6, 7, 8]


def test_select_of_nothing_new_has_whole_number_rows() -> None:
    for share in ("half", "all"):
        candidates = select(logits_of([0, 1], 3), num_known=2, implicit_share=share)
        assert candidates.implicit.shape == (0,)
        assert candidates.implicit.dtype == np.int64


@pytest.mark.parametrize("seed", range(3))
def test_the_lower_half_of_some_rows_is_of_the_least_entropy(seed: int) -> None:
    rng = np.random.default_rng(seed)
    entropies = rng.uniform(0, 2, 30).astype(np.float32)
    members = rng.permutation(30)[: int(rng.integers(1, 20))]
    half = lower_half(members, entropies).tolist()
    by_entropy = sorted(members.tolist(), key=lambda row: entropies[row])
    assert half == by_entropy[: math.ceil(len(members) / 2)]


def test_the_lower_half_is_one_of_one_and_none_of_none() -> None:
    entropies = np.array([1, 2, 3, 4], np.float32)
    assert lower_half(np.array([3]), entropies).tolist() == [3]
    assert lower_half(np.array([3, 1, 2]), entropies).tolist() == [1, 2]
    assert lower_half(np.empty(0, np.int64), entropies).tolist() == []


def test_entropy_is_equation_7() -> None:
    logits = np.random.default_rng(0).normal(0, 2, (5, 4)).astype(np.float32)
    for row, actual in zip(logits.tolist(), entropy(logits).tolist(), strict=True):
        total = sum(map(math.exp, row))
        shares = [math.exp(value) / total for value in row]
        assert actual == pytest.approx(-sum(p * math.log(p) for p in shares), rel=1e-5)


def test_entropy_is_finite_for_extreme_logits() -> None:
    logits = np.array([[1e30, 0, 0], [0, 0, 0], [-1e30, 1e30, 1e30]], np.float32)
    assert entropy(logits).tolist() == pytest.approx([0, math.log(3), math.log(2)])


@pytest.mark.parametrize("seed", range(20))
def test_clustering_accuracy_is_the_best_renaming(seed: int) -> None:
    rng = np.random.default_rng(seed)
    clusters = rng.integers(0, int(rng.integers(1, 7)), 12)
    labels = rng.integers(0, int(rng.integers(1, 5)), 12)
    expected = accuracy_by_hand(clusters.tolist(), labels.tolist())
    assert clustering_accuracy(clusters, labels) == pytest.approx(expected)


def test_left_over_clusters_count_as_wrong() -> None:
    split = np.array([0, 0, 1, 1, 2, 2, 2, 3])
    assert clustering_accuracy(split, np.array([0, 0, 0, 0, 1, 1, 1, 1])) == pytest.approx(5 / 8)


def test_clustering_accuracy_of_no_image_is_0() -> None:
    nothing = np.empty(0, np.int64)
    assert clustering_accuracy(nothing, nothing) == 0


def test_contingency_counts_pairs() -> None:
    rows, columns = np.array([0, 0, 2, 2, 2]), np.array([1, 1, 0, 1, 0])
    assert contingency(rows, columns).tolist() == [[0, 2], [0, 0], [2, 1]]


def test_elbow_is_the_bend() -> None:
    counts = list(range(11, 31))
    sse = [1000.0 - 90 * (k - 11) if k <= 20 else 190 - 2.0 * (k - 20) for k in counts]
    assert elbow(counts, sse) == 20


def test_elbow_is_the_point_farthest_from_the_chord() -> None:
    counts = list(range(5, 60))
    rng = np.random.default_rng(0)
    sse = [100 / k + abs(rng.normal(0, 0.05)) for k in counts]
    first, last = (counts[0], sse[0]), (counts[-1], sse[-1])

    def below_the_chord(k: int, value: float) -> float:
        slope = (last[1] - first[1]) / (last[0] - first[0])
        return first[1] + slope * (k - first[0]) - value

    # kneed scales by the extremes, which are the ends of a curve that falls on the whole.
    farthest = max(zip(counts, sse, strict=True), key=lambda point: below_the_chord(*point))
    assert elbow(counts, sse) == farthest[0]


def test_elbow_is_the_deepest_bend_and_not_kneeds_first() -> None:
    counts = list(range(5, 41))
    drops = [3.0] * 3 + [0.5] * 4 + [2.5] * 13 + [0.1] * 15
    sse = [100.0]
    for drop in drops:
        sse.append(sse[-1] - drop)
    assert KneeLocator(counts, sse, curve="convex", direction="decreasing").knee == 8
    assert elbow(counts, sse) == 25


@pytest.mark.parametrize(
    ("counts", "sse", "middle"),
    [
        ([4], [3.0], 4),
        ([4, 5], [3.0, 1.0], 5),
        ([4, 5, 6], [3.0, 1.0, 0.9], 5),
        ([4, 5, 6, 7, 8], [2.0] * 5, 6),
        ([4, 5, 6, 7], [1.0, 2.0, 2.0, 1.5], 6),
    ],
)
def test_a_curve_without_bend_gives_the_middle_and_says_so(
    counts: list[int], sse: list[float], middle: int, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        assert elbow(counts, sse) == middle
    assert f"took k = {middle}" in caplog.text


@pytest.mark.parametrize("new", [2, 4])
def test_both_criteria_find_the_number_of_separated_groups(new: int) -> None:
    points = blobs(3 + new)
    known_labels = np.repeat(np.arange(3), 20)
    curve = sweep_curve(points, known_labels, num_known=3, config=config())
    assert curve.k == list(range(4, 3 + 8 + 1))
    assert curve.k_elbow == 3 + new
    # Fewer clusters merge groups of new classes first, which costs the known ones nothing.
    assert 4 <= curve.k_accuracy <= 3 + new
    assert max(curve.accuracy) == pytest.approx(1)
    assert curve.sse == sorted(curve.sse, reverse=True)
    assert len(curve.k_accuracy_spread) == 2


def test_estimate_scores_the_known_images_by_the_restart_of_least_sse() -> None:
    rng = np.random.default_rng(0)
    points = rng.normal(size=(70, 3)).astype(np.float32)
    known_labels = rng.integers(0, 3, 30)
    curve = sweep_curve(points, known_labels, num_known=3, config=config(restarts=4, seed=5))
    spread = np.zeros((len(curve.k), 4))
    for row, runs in enumerate(sweep(points, curve.k, restarts=4, seed=5)):
        best = min(runs, key=lambda run: run.sse)
        assert curve.sse[row] == best.sse
        assert curve.accuracy[row] == clustering_accuracy(best.labels[:30], known_labels)
        spread[row] = [clustering_accuracy(run.labels[:30], known_labels) for run in runs]
    assert curve.k_accuracy == curve.k[curve.accuracy.index(max(curve.accuracy))]
    of_each = [curve.k[column.tolist().index(max(column))] for column in spread.T]
    assert curve.k_accuracy_spread == of_each
    assert len(set(of_each)) > 1


def test_ties_in_accuracy_go_to_the_smallest_k() -> None:
    points = np.concatenate([np.tile(blobs(3, each=1), (20, 1)), 50 + blobs(4)])
    curve = sweep_curve(points, np.tile(np.arange(3), 20), num_known=3, config=config())
    assert curve.accuracy.count(max(curve.accuracy)) > 1
    assert curve.k_accuracy == curve.k[curve.accuracy.index(max(curve.accuracy))]


def test_k_is_never_above_half_the_distinct_points() -> None:
    distinct = np.random.default_rng(0).normal(size=(14, 3)).astype(np.float32)
    points = np.tile(distinct, (10, 1))
    curve = sweep_curve(points, np.zeros(10, np.int64), num_known=2, config=config(k_max=40))
    assert curve.k == [3, 4, 5, 6, 7]


def test_without_room_for_a_sweep_one_k_is_tried() -> None:
    points = np.random.default_rng(0).normal(size=(3, 2)).astype(np.float32)
    assert sweep_curve(points, np.zeros(1, np.int64), num_known=1, config=config()).k == [2]
    assert sweep_curve(points, np.zeros(1, np.int64), num_known=9, config=config()).k == [3]


@pytest.mark.parametrize("preset_fields", [{}, {"implicit_share": "half"}, {"assignment": "joint"}])
def test_discover_finds_the_hidden_classes(preset_fields: dict[str, Any]) -> None:
    logits, features = toy(3, 4)
    settings = config(k_method="scda", **preset_fields)
    found = discover(logits, features, features, num_known=3, config=settings)
    true = found.candidates.implicit // 20 - 3
    assert found.curve is not None
    mean = (found.curve.k_accuracy + found.curve.k_elbow) / 2
    assert found.k_star == math.ceil(mean) - 3
    assert set(found.implicit_labels.tolist()) == set(range(found.k_star))
    assert found.implicit_labels.dtype == np.int64
    assert all((true == true[found.implicit_labels == c][0]).sum() for c in range(found.k_star))
    if found.k_star == 4:
        assert clustering_accuracy(found.implicit_labels, true) == 1


def test_k_may_be_fixed() -> None:
    logits, features = toy(3, 4)
    for k in (1, 4, 6):
        found = discover(logits, features, features, num_known=3, config=config(k=k))
        assert (found.k_star, found.curve, found.k_graph) == (k, None, None)
    found = discover(logits, features, features, num_known=3, config=config(k=4))
    true = found.candidates.implicit // 20 - 3
    assert clustering_accuracy(found.implicit_labels, true) == 1


def test_a_fixed_k_is_no_larger_than_t_im() -> None:
    logits = logits_of([0] * 6 + [1] * 6 + [2] * 3, 3)
    features = np.random.default_rng(0).normal(size=(15, 4)).astype(np.float32)
    assert discover(logits, features, features, num_known=2, config=config(k=8)).k_star == 3


def test_nothing_called_new_takes_the_tenth_of_highest_entropy_and_says_so() -> None:
    certainty = np.linspace(2, 9, 40, dtype=np.float32)
    logits = np.stack([certainty, np.zeros(40), np.zeros(40)], axis=1).astype(np.float32)
    features = np.random.default_rng(0).normal(size=(40, 4)).astype(np.float32)
    found = discover(logits, features, features, num_known=2, config=config(novel="yes"))
    assert found.candidates.implicit.tolist() == [0, 1, 2, 3]
    assert not set(found.candidates.known.tolist()) & {0, 1, 2, 3}
    assert len(found.candidates.known) == len(found.candidates.known_labels) == 20
    assert found.k_star >= 1
    assert str(found.findings[0]).startswith("k unsure: no image was predicted as new; the tenth")


def test_an_image_that_stands_in_as_new_is_not_known_as_well() -> None:
    certainty = np.linspace(5, 9, 10, dtype=np.float32)
    logits = np.stack([certainty, np.zeros(10), np.zeros(10)], axis=1).astype(np.float32)
    logits[4] = [0, 0.1, 0]  # the only one called 1, and the least certain of all
    features = np.random.default_rng(0).normal(size=(10, 4)).astype(np.float32)
    found = discover(logits, features, features, num_known=2, config=config(novel="yes"))
    assert found.candidates.implicit.tolist() == [4]
    assert found.candidates.known.tolist() == [5, 6, 7, 8, 9]
    assert found.candidates.known_labels.tolist() == [0] * 5


def test_nothing_called_new_among_a_few_images_is_k_star_0() -> None:
    logits = logits_of([0, 0, 1, 1], 3)
    found = discover(logits, blobs(4, each=1), blobs(4, each=1), num_known=2, config=config())
    assert (found.k_star, len(found.implicit_labels), found.curve) == (0, 0, None)
    assert [finding.status for finding in found.findings] == [Status.K_UNSURE]


@pytest.mark.parametrize("novel", ["auto", "no"])
def test_who_did_not_ask_for_new_classes_gets_none_out_of_nothing(novel: str) -> None:
    logits = logits_of([0, 1] * 50, 3)
    features = np.random.default_rng(0).normal(size=(100, 4)).astype(np.float32)
    found = discover(logits, features, features, num_known=2, config=config(novel=novel))
    assert (found.k_star, len(found.candidates.implicit)) == (0, 0)
    fixed = discover(logits, features, features, num_known=2, config=config(k=2))
    assert (fixed.k_star, len(fixed.candidates.implicit)) == (2, 10)


@pytest.mark.parametrize(
    ("k_accuracy", "k_elbow", "k_star"),
    [(5, 7, 3), (5, 8, 4), (4, 4, 1), (3, 3, 1), (11, 11, 8), (12, 20, 8)],
)
def test_k_star_is_the_mean_of_both_criteria_rounded_up_within_its_bounds(
    k_accuracy: int, k_elbow: int, k_star: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "scda.adapt.discovery.discover.sweep_curve", lambda *_, **__: votes(k_accuracy, k_elbow)
    )
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
    method: str, of_graph: int, k_star: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "scda.adapt.discovery.discover.sweep_curve", lambda *_, **__: votes(5, 8)
    )  # 7 - 3
    monkeypatch.setattr(
        "scda.adapt.discovery.discover.count_communities", lambda *_, **__: of_graph
    )
    logits, features = toy(3, 5)
    settings = config(k_max=8, k_method=method)
    found = discover(logits, features, features, num_known=3, config=settings)
    assert (found.k_star, found.k_graph, found.curve) == (k_star, of_graph, votes(5, 8))
    assert found.findings == ((AT_BOUND,) if k_star == 8 else ())


def test_a_sweep_that_ended_too_soon_is_told_whatever_the_graph_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("scda.adapt.discovery.discover.sweep_curve", lambda *_, **__: votes(12, 12))
    monkeypatch.setattr("scda.adapt.discovery.discover.count_communities", lambda *_, **__: 5)
    logits, features = toy(3, 5)
    found = discover(logits, features, features, num_known=3, config=config(k_max=8))
    assert found.k_star == 7
    assert found.findings == (AT_BOUND,)


@pytest.mark.parametrize("method", ["scda", "graph", "both"])
def test_every_method_counts_separated_groups(method: str) -> None:
    features = blobs(7, width=12)
    logits, _ = toy(3, 4)
    settings = config(k_method=method)
    found = discover(logits, features, features, num_known=3, config=settings)
    assert abs(found.k_star - 4) <= 1
    assert found.k_graph == 4


@pytest.mark.parametrize(("k_accuracy", "k_elbow", "mean"), [(5, 7, 6), (5, 8, 7), (8, 5, 7)])
def test_k_hat_is_the_mean_of_both_criteria_rounded_up(
    k_accuracy: int, k_elbow: int, mean: int
) -> None:
    assert k_hat(votes(k_accuracy, k_elbow)) == mean


def test_fewer_classes_than_asked_for_are_said() -> None:
    logits, features = toy(3, 2)
    features[60:80], features[80:] = features[60], features[80]  # two distinct images are new
    found = discover(logits, features, features, num_known=3, config=config(k=5))
    assert found.k_star == 2
    assert [str(finding) for finding in found.findings] == [
        "fewer than asked for: the new images form 2 classes instead of --k 5; use a smaller --k"
    ]


def test_as_many_classes_as_asked_for_are_no_matter() -> None:
    logits, features = toy(3, 2)
    assert discover(logits, features, features, num_known=3, config=config(k=5)).findings == ()


def test_given_candidates_are_divided_as_they_are() -> None:
    features = blobs(5)
    candidates = Candidates(np.arange(60), np.repeat(np.arange(3), 20), np.arange(65, 95))
    settings = config(k_method="graph")
    found = cluster_candidates(candidates, features, features, num_known=3, config=settings)
    assert found.candidates is candidates
    assert (found.k_star, found.k_graph) == (2, 2)
    assert clustering_accuracy(found.implicit_labels, candidates.implicit // 20 - 3) == 1
    assert (found.verdict, found.suspects.tolist(), found.k_path) == (None, [], ())
    assert found.findings == ()


def test_one_image_of_t_im_is_one_class() -> None:
    features = blobs(4)
    candidates = Candidates(np.arange(60), np.repeat(np.arange(3), 20), np.array([70]))
    for fields in ({}, {"k": 4}, {"k_method": "graph"}, {"assignment": "joint"}):
        found = cluster_candidates(
            candidates, features, features, num_known=3, config=config(**fields)
        )
        assert (found.k_star, found.implicit_labels.tolist()) == (1, [0])


def test_k_star_is_no_larger_than_t_im() -> None:
    rng = np.random.default_rng(0)
    labels = [0] * 60 + [1] * 60 + [2]
    features = rng.normal(size=(121, 4)).astype(np.float32)
    found = discover(logits_of(labels, 3), features, features, num_known=2, config=config())
    assert found.k_star == 1
    assert found.implicit_labels.tolist() == [0]
    assert found.findings == ()


def test_joint_assignment_divides_by_the_clusters_of_the_union() -> None:
    logits, features = toy(3, 2)
    fields = {"assignment": "joint", "cluster_space": "features", "pca": 0, "k": 2}
    found = discover(logits, features, features, num_known=3, config=config(**fields))
    candidates = found.candidates
    points = np.concatenate([features[candidates.known], features[candidates.implicit]])
    union = cluster(points, 5, restarts=2, seed=0).labels[len(candidates.known) :]
    assert clustering_accuracy(found.implicit_labels, union) == 1
    assert found.k_star == 2


def test_a_known_class_without_images_takes_no_large_cluster_from_the_new() -> None:
    sizes = [20, 2, 20, 20, 2, 20]  # of the known class 0, and of five new groups
    groups = np.repeat(np.arange(6), sizes)
    rng = np.random.default_rng(0)
    features = (10 * np.eye(6)[groups] + rng.normal(0, 0.1, (84, 6))).astype(np.float32)
    logits = logits_of([0 if group == 0 else 3 for group in groups], 4)  # none is called 1 or 2
    fields = {"assignment": "joint", "cluster_space": "features", "k": 3}
    found = discover(logits, features, features, num_known=3, config=config(**fields))
    true = groups[found.candidates.implicit]
    large = [set(found.implicit_labels[true == group].tolist()) for group in (2, 3, 5)]
    assert sorted(map(list, large)) == [[0], [1], [2]]
    assert found.k_star == 3


def test_the_backbone_is_balanced_and_both_spaces_side_by_side() -> None:
    rng = np.random.default_rng(0)
    features = rng.normal(3, 1, (12, 3)).astype(np.float32) * 1000
    backbone = rng.normal(-2, 1, (12, 5)).astype(np.float32)
    candidates = Candidates(np.array([7, 2, 3]), np.zeros(3, np.int64), np.array([1, 9]))
    rows = [7, 2, 3, 1, 9]
    parts = []
    for matrix in (features, backbone):
        unit = [row / np.linalg.norm(row) for row in matrix[rows].astype(np.float64)]
        centred = np.array([row - sum(unit) / len(unit) for row in unit])
        parts.append(centred / math.sqrt(sum(row @ row for row in centred) / len(rows)))
    for space, expected in (("both", np.hstack(parts)), ("backbone", parts[1])):
        settings = config(cluster_space=space, pca=0)
        points = cluster_space(features, backbone, candidates, settings)
        np.testing.assert_allclose(points, expected, atol=1e-5)


def test_features_alone_are_taken_as_they_are() -> None:
    features = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
    candidates = Candidates(np.array([4]), np.zeros(1, np.int64), np.array([0, 2]))
    space = cluster_space(features, features, candidates, config(cluster_space="features", pca=0))
    np.testing.assert_array_equal(space, features[[4, 0, 2]])


@pytest.mark.parametrize(("pca", "expected"), [(0, 6), (3, 3), (64, 6)])
def test_pca_keeps_no_more_dimensions_than_there_are(pca: int, expected: int) -> None:
    features = np.random.default_rng(0).normal(size=(20, 6)).astype(np.float32)
    everything = Candidates(np.arange(10), np.zeros(10, np.int64), np.arange(10, 20))
    fields = {"cluster_space": "features", "pca": pca}
    assert cluster_space(features, features, everything, config(**fields)).shape == (20, expected)
    few = Candidates(np.arange(2), np.zeros(2, np.int64), np.arange(2, 4))
    assert cluster_space(features, features, few, config(**fields)).shape[1] == min(
        expected, 3 if pca else 6
    )


def test_classes_keep_their_numbers_while_they_keep_their_images() -> None:
    old = discovery([0, 1, 2, 3, 4, 5], [0, 0, 1, 1, 2, 2], 3)
    new = discovery([1, 2, 3, 5, 6], [2, 0, 0, 1, 1], 3)
    assert match_to_previous(new, old).implicit_labels.tolist() == [0, 1, 1, 2, 2]


def test_a_class_that_is_new_gets_the_next_number() -> None:
    old = discovery([0, 1, 2, 3], [0, 0, 1, 1], 2)
    new = discovery([0, 1, 2, 3, 8, 9], [2, 2, 1, 1, 0, 0], 3)
    assert match_to_previous(new, old).implicit_labels.tolist() == [0, 0, 1, 1, 2, 2]


def test_a_class_that_is_gone_leaves_no_gap() -> None:
    old = discovery([0, 1, 2, 3, 4, 5], [0, 0, 1, 1, 2, 2], 3)
    new = discovery([0, 1, 4, 5], [1, 1, 0, 0], 2)
    assert match_to_previous(new, old).implicit_labels.tolist() == [0, 0, 1, 1]


def test_numbers_follow_the_most_shared_images() -> None:
    rng = np.random.default_rng(0)
    old_labels, new_labels = rng.integers(0, 4, 60), rng.integers(0, 4, 60)
    old, new = (
        discovery(list(range(60)), labels.tolist(), 4) for labels in (old_labels, new_labels)
    )
    kept = (match_to_previous(new, old).implicit_labels == old_labels).sum()
    best = max(
        (np.array(names)[new_labels] == old_labels).sum() for names in permutations(range(4))
    )
    assert kept == best


@pytest.mark.parametrize(
    "old", [None, discovery([], [], 0), discovery([7, 8], [0, 1], 2)], ids=["none", "0", "disjoint"]
)
def test_without_shared_images_there_is_nothing_to_align(old: Discovery | None) -> None:
    new = discovery([0, 1], [1, 0], 2)
    assert match_to_previous(new, old) is new


def test_the_same_seed_discovers_the_same() -> None:
    rng = np.random.default_rng(0)
    logits = rng.normal(0, 2, (80, 5)).astype(np.float32)
    features = rng.normal(size=(80, 6)).astype(np.float32)
    one, two = (
        discover(logits, features, features, num_known=4, config=config()) for _ in range(2)
    )
    assert one.curve == two.curve
    np.testing.assert_array_equal(one.implicit_labels, two.implicit_labels)


def check_whole(found: Discovery, images: int) -> None:
    candidates = found.candidates
    both: NDArray[np.int64] = np.concatenate([candidates.known, candidates.implicit])
    assert len(set(both.tolist())) == len(both) <= images
    assert len(candidates.known) == len(candidates.known_labels)
    assert len(candidates.implicit) == len(found.implicit_labels)
    assert set(found.implicit_labels.tolist()) == set(range(found.k_star))


@pytest.mark.parametrize("fields", [{}, {"assignment": "joint"}, {"k": 3}, {"k": 3, "pca": 0}])
@pytest.mark.parametrize("space", ["backbone", "both", "features"])
@pytest.mark.parametrize("images", [2, 3, 4, 5, 24])
def test_tiny_equal_and_doubled_targets_never_crash(
    images: int, space: str, fields: dict[str, Any]
) -> None:
    rng = np.random.default_rng(images)
    varied = rng.normal(size=(images, 4)).astype(np.float32)
    for known in (2, 10):
        logits = rng.normal(0, 3, (images, known + 1)).astype(np.float32)
        surely = 20 * np.eye(known + 1, dtype=np.float32)
        for push in (np.zeros_like(surely[0]), surely[0], surely[known]):  # mixed, known, new
            for features in (varied, varied[np.zeros(images, int)], varied[np.arange(images) % 2]):
                found = discover(
                    logits + push,
                    features,
                    features,
                    num_known=known,
                    config=config(cluster_space=space, **fields),
                )
                check_whole(found, images)


def test_labels_are_whole_numbers() -> None:
    labels: Ids = discover(*toy(2, 2), blobs(4), num_known=2, config=config()).implicit_labels
    assert labels.dtype == np.int64
