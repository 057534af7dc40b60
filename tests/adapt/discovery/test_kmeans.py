import numpy as np
import pytest
from sklearn.cluster import KMeans

from scda.adapt.discovery.kmeans import Clustering, Points, cluster, sweep


def random_points(count: int = 120, width: int = 5) -> Points:
    return np.random.default_rng(0).normal(size=(count, width)).astype(np.float32)


def blobs(spread: float = 0.5) -> Points:
    rng = np.random.default_rng(0)
    centres = rng.normal(0, 4, (6, 4))
    return (np.repeat(centres, 30, axis=0) + rng.normal(0, spread, (180, 4))).astype(np.float32)


def sse_by_hand(points: Points, run: Clustering) -> float:
    total = 0.0
    for point, label in zip(points.tolist(), run.labels.tolist(), strict=True):
        total += sum(
            (p - c) ** 2 for p, c in zip(point, run.centroids[label].tolist(), strict=True)
        )
    return total


def same(one: Clustering, two: Clustering) -> bool:
    return one.sse == two.sse and bool((one.labels == two.labels).all())


@pytest.mark.parametrize("count", [1, 3, 6, 10])
def test_as_good_as_scikit_learn(count: int) -> None:
    points = blobs()
    expected = KMeans(count, n_init=4, random_state=0).fit(points).inertia_
    # 3%: both stop in a local minimum; the chosen restarts differ.
    assert cluster(points, count, restarts=4, seed=0).sse == pytest.approx(expected, rel=0.03)


def test_separated_groups_are_found_exactly() -> None:
    labels = cluster(blobs(0.01), 6, restarts=2, seed=0).labels.reshape(6, 30)
    assert (labels == labels[:, :1]).all()
    assert sorted(labels[:, 0].tolist()) == list(range(6))


def test_sse_is_the_squared_distance_to_the_own_and_nearest_centroid() -> None:
    points = random_points()
    run = cluster(points, 7, restarts=1, seed=0)
    assert run.sse == pytest.approx(sse_by_hand(points, run), rel=1e-4)
    distances = ((points[:, None] - run.centroids[None]) ** 2).sum(axis=2)
    np.testing.assert_array_equal(run.labels, distances.argmin(axis=1))


def test_the_best_restart_is_kept() -> None:
    points = random_points()
    single = [cluster(points, 8, restarts=1, seed=seed).sse for seed in (5, 6, 7)]
    assert cluster(points, 8, restarts=3, seed=5).sse == min(single)


def test_the_same_seed_gives_the_same_clusters_and_another_others() -> None:
    points = random_points()
    assert same(*(cluster(points, 8, restarts=2, seed=3) for _ in range(2)))
    assert not same(*(cluster(points, 8, restarts=1, seed=seed) for seed in (3, 4)))


def test_sweep_gives_every_restart_of_every_count() -> None:
    points = random_points()
    runs = list(sweep(points, [2, 5, 9], restarts=3, seed=0))
    assert [len(of_count) for of_count in runs] == [3, 3, 3]
    assert [len(run.centroids) for of_count in runs for run in of_count] == [2] * 3 + [5] * 3 + [
        9
    ] * 3


def test_smaller_counts_start_from_the_first_seeds_of_the_largest() -> None:
    points = random_points()
    few = dict(zip([3, 9], sweep(points, [3, 9], restarts=2, seed=0), strict=True))
    many = dict(zip(range(2, 10), sweep(points, range(2, 10), restarts=2, seed=0), strict=True))
    for count in (3, 9):
        assert all(same(*pair) for pair in zip(few[count], many[count], strict=True))


def test_the_curve_of_a_sweep_is_as_low_as_scikit_learns() -> None:
    points, counts = blobs(), [2, 4, 6, 8, 12]
    for count, runs in zip(counts, sweep(points, counts, restarts=3, seed=0), strict=True):
        expected = KMeans(count, n_init=3, random_state=0).fit(points).inertia_
        # 10%: one drawing of seeds serves all counts, and there are fewer steps.
        assert min(run.sse for run in runs) <= 1.1 * expected


def test_sweep_repeats_itself() -> None:
    points = random_points()
    one, two = (list(sweep(points, [3, 7], restarts=2, seed=1)) for _ in range(2))
    for runs, again in zip(one, two, strict=True):
        assert all(same(*pair) for pair in zip(runs, again, strict=True))


def test_spherical_clusters_are_directions() -> None:
    rng = np.random.default_rng(0)
    groups = np.arange(40) % 2
    lengths = rng.uniform(0.5, 1.5, (40, 1))
    directions = np.eye(3)[groups] + rng.normal(0, 0.05, (40, 3))
    unit = directions / np.linalg.norm(directions, axis=1, keepdims=True)
    points = (unit * lengths).astype(np.float32)
    run = cluster(points, 2, restarts=2, seed=0, spherical=True)
    assert len({(int(g), int(c)) for g, c in zip(groups, run.labels, strict=True)}) == 2
    np.testing.assert_allclose(np.linalg.norm(run.centroids, axis=1), 1, rtol=1e-5)
    np.testing.assert_array_equal(run.labels, (points @ run.centroids.T).argmax(axis=1))


def test_as_many_clusters_as_points_leave_no_error() -> None:
    points = random_points(6)
    run = cluster(points, 6, restarts=1, seed=0)
    assert sorted(run.labels.tolist()) == list(range(6))
    assert run.sse == pytest.approx(0, abs=1e-6)


def test_more_clusters_than_distinct_points_are_no_trouble(
    capfd: pytest.CaptureFixture[str],
) -> None:
    points = np.repeat(random_points(2), 5, axis=0)
    run = cluster(points, 4, restarts=2, seed=0)
    assert run.sse == pytest.approx(0, abs=1e-4)
    assert len(set(run.labels[:5].tolist())) == len(set(run.labels[5:].tolist())) == 1
    assert capfd.readouterr() == ("", "")  # faiss would warn of few points per centroid
