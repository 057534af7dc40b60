from collections.abc import Callable

import numpy as np
import pytest
from sklearn.cluster import KMeans

from scda.adapt.config import TrainConfig
from scda.adapt.discovery.counting import sweep_search
from scda.adapt.discovery.counting.estimate import Curve
from scda.adapt.discovery.counting.sweep import sweep_curve
from scda.adapt.discovery.counting.sweep_search import search
from scda.adapt.discovery.kmeans import Points, clusterings, seedings


def mixture(classes: int, *, each: int = 12, width: int = 16) -> Points:
    rng = np.random.default_rng(classes)
    centres = np.repeat(rng.normal(0, 2, (classes, width)), each, axis=0)
    return (centres + rng.normal(0, 0.3, centres.shape)).astype(np.float32)


def curve_of(points: Points, num_known: int, *, k_max: int = 90, each: int = 12) -> Curve:
    known_labels = np.repeat(np.arange(num_known), each)
    config = TrainConfig(restarts=2, k_max=k_max)
    return sweep_curve(points, known_labels, num_known=num_known, config=config)


def every_k(monkeypatch: pytest.MonkeyPatch, points: Points, num_known: int) -> Curve:
    with monkeypatch.context() as patch:
        patch.setattr(sweep_search, "EVERY_UP_TO", 10**6)
        return curve_of(points, num_known)


def tent(top: int) -> Callable[[int], float]:
    return lambda k: -float(abs(k - top))


def ramp(edge: int) -> Callable[[int], float]:
    return lambda k: float(min(k, edge))


def highest(scores: dict[int, float]) -> list[int]:
    return [max(scores, key=lambda k: scores[k])]


@pytest.mark.parametrize("size", [1, 2, 48])
def test_a_short_range_is_tried_whole(size: int) -> None:
    counts = range(11, 11 + size)
    assert list(search(counts, lambda k: k, lambda scores: [])) == list(counts)


@pytest.mark.parametrize("size", [49, 120, 650])
def test_the_summit_of_a_long_range_is_found_wherever_it_is(size: int) -> None:
    counts = range(30, 30 + size)
    for top in counts:
        tried = search(counts, tent(top), highest)
        assert highest(tried) == [top]
        assert list(tried) == sorted(tried)
        assert {counts[0], counts[-1]} <= tried.keys() <= set(counts)
        assert len(tried) <= 36


def test_the_left_end_of_a_plateau_is_found() -> None:
    for edge in range(30, 150):
        tried = search(range(30, 150), ramp(edge), highest)
        assert highest(tried) == [edge]


def test_a_pick_that_moves_is_followed() -> None:
    # The first grid, 1, 9, 17 ..., sees 57 alone; the way up to 75 leads around 65 and 73.
    hill = set(range(57, 76)) - {65, 73}
    tried = search(range(1, 121), lambda k: float(k if k in hill else 0), highest)
    assert highest(tried) == [75]


def test_no_k_is_scored_twice() -> None:
    scored: list[int] = []
    search(range(10, 200), scored.append, lambda scores: [50, 52])
    assert len(scored) == len(set(scored))
    assert set(range(47, 56)) <= set(scored)


@pytest.mark.parametrize(("num_known", "classes"), [(5, 12), (10, 30), (20, 45), (6, 80)])
def test_a_searched_curve_picks_what_every_k_picks(
    num_known: int, classes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    points = mixture(classes)
    searched, whole = curve_of(points, num_known), every_k(monkeypatch, points, num_known)
    assert len(searched.k) < len(whole.k) / 2 or len(whole.k) <= 48
    rows = [whole.k.index(k) for k in searched.k]
    assert searched.sse == [whole.sse[row] for row in rows]
    assert searched.accuracy == [whole.accuracy[row] for row in rows]
    # k-means stops in local minima, so a curve has more than one summit of nearly one height.
    best = searched.accuracy[searched.k.index(searched.k_accuracy)]
    assert best >= max(whole.accuracy) - 0.05
    assert abs(searched.k_elbow - whole.k_elbow) <= 5


def test_a_sharp_bend_is_found_exactly_and_an_accuracy_of_1(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Which k below 60 first leaves all known classes alone is chance: 5 of 60 equal distances.
    points = np.tile(1000 * np.eye(60, dtype=np.float32), (5, 1))
    points += np.random.default_rng(0).normal(0, 1e-3, points.shape).astype(np.float32)
    known = np.flatnonzero(np.arange(300) % 60 < 5)
    order = np.concatenate([known, np.setdiff1d(np.arange(300), known)])
    labels = known % 60
    config = TrainConfig(restarts=2, k_max=90)
    searched = sweep_curve(points[order], labels, num_known=5, config=config)
    monkeypatch.setattr(sweep_search, "EVERY_UP_TO", 10**6)
    whole = sweep_curve(points[order], labels, num_known=5, config=config)
    assert searched.k_elbow == whole.k_elbow == 60
    assert max(searched.accuracy) == max(whole.accuracy) == 1
    assert whole.k_accuracy <= searched.k_accuracy <= 60


def test_a_long_sweep_repeats_itself() -> None:
    points = mixture(30)
    assert curve_of(points, 10) == curve_of(points, 10)


@pytest.mark.parametrize("images", [2, 5, 60])
def test_fewer_points_than_k_max(images: int) -> None:
    points = np.random.default_rng(0).normal(size=(images, 4)).astype(np.float32)
    known_labels = np.arange(images // 2) % 2
    config = TrainConfig(restarts=2, k_max=700)
    curve = sweep_curve(points, known_labels, num_known=2, config=config)
    assert curve.k[-1] <= max(images // 2, min(3, images))
    assert curve.k_accuracy in curve.k
    assert curve.k_elbow in curve.k


@pytest.mark.parametrize("distinct", [1, 3])
def test_equal_and_doubled_points(distinct: int) -> None:
    points = np.repeat(mixture(distinct, each=1), 100, axis=0)
    curve = curve_of(points, 2, k_max=200, each=50)
    assert curve.k == [3]


def test_one_cluster_has_no_crash_and_no_order() -> None:
    points = np.random.default_rng(0).normal(size=(300, 8)).astype(np.float32)
    curve = curve_of(points, 3, k_max=120, each=20)
    assert curve.k[0] == 4
    assert curve.k[-1] == 123
    assert curve.k_accuracy == curve.k[curve.accuracy.index(max(curve.accuracy))]


@pytest.mark.parametrize("count", [3, 20, 21, 54, 55, 60])
def test_every_count_starts_as_scikit_learn_does(count: int) -> None:
    points = mixture(25)
    seeds = seedings(points, range(2, 61), restarts=2, seed=7)
    for r, run in enumerate(clusterings(points, seeds, count)):
        expected = KMeans(count, n_init=1, random_state=7 + r).fit(points - points.mean(axis=0))
        assert run.sse == pytest.approx(expected.inertia_, rel=1e-3)
