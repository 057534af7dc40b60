import logging

import numpy as np
import pytest
from kneed import KneeLocator

from scda.adapt.discovery.counting.estimate import Curve
from scda.adapt.discovery.counting.sweep import elbow, k_hat, sweep_curve
from scda.adapt.discovery.kmeans import sweep
from scda.adapt.discovery.matching import clustering_accuracy
from tests.adapt.discovery.blobs import blobs, config


def curve_of(k_accuracy: int, k_elbow: int) -> Curve:
    return Curve([4, 5], [2.0, 1.0], [1.0, 1.0], k_accuracy, [k_accuracy], k_elbow)


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


@pytest.mark.parametrize(("k_accuracy", "k_elbow", "mean"), [(5, 7, 6), (5, 8, 7), (8, 5, 7)])
def test_k_hat_is_the_mean_of_both_criteria_rounded_up(
    k_accuracy: int, k_elbow: int, mean: int
) -> None:
    assert k_hat(curve_of(k_accuracy, k_elbow)) == mean
