"""Large targets: what is approximate above a size, and how much memory it takes."""

import tracemalloc
from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from scda.adapt.config import TrainConfig
from scda.adapt.continuity.memory import remember
from scda.adapt.discovery import kmeans, large, neighbours, propagation, space
from scda.adapt.discovery.kmeans import Points, cluster
from scda.adapt.discovery.large import blocks, evenly_spaced
from scda.adapt.discovery.matching import clustering_accuracy
from scda.adapt.discovery.neighbours import nearest_among, nearest_others
from scda.adapt.discovery.novelty import comparison, whitening
from scda.adapt.discovery.novelty.comparison import Comparison
from scda.adapt.discovery.novelty.whitening import fit_whitening
from scda.adapt.discovery.propagation import neighbour_graph, propagate, spread
from scda.adapt.discovery.space import cluster_space
from scda.adapt.runtime import threads
from scda.adapt.runtime.threads import one_thread
from scda.models.index import Ids, build_index, nearest, normalised

CLASSES, EACH, WIDTH = 12, 250, 320
ROWS = CLASSES * EACH


@pytest.fixture(scope="module")
def target() -> tuple[Points, Ids]:
    rng = np.random.default_rng(0)
    labels = rng.permutation(np.repeat(np.arange(CLASSES), EACH))
    places = rng.normal(size=(CLASSES, 16))[labels] + 0.4 * rng.normal(size=(ROWS, 16))
    features = np.maximum(places @ rng.normal(size=(16, WIDTH)), 0)
    return features.astype(np.float32), labels


@pytest.fixture
def all_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let 500 images be many."""
    monkeypatch.setattr(large, "LARGE", 500)
    monkeypatch.setattr(large.evenly_spaced, "__defaults__", (500,))
    for module in (comparison, neighbours, propagation, space, kmeans):
        monkeypatch.setattr(module, "LARGE", 500)
    monkeypatch.setattr(neighbours, "_OF_CELL", 100)


def peak_of(work: Callable[[], object]) -> float:
    """Return how many times the memory of the features work takes at its peak, result included."""
    tracemalloc.start()
    work()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return peak / (ROWS * WIDTH * 4)


@pytest.mark.parametrize(("count", "most"), [(0, 5), (1, 5), (5, 5), (6, 5), (1000, 7)])
def test_evenly_spaced_rows_are_distinct_and_reach_both_ends(count: int, most: int) -> None:
    rows = evenly_spaced(count, most)
    assert len(rows) == len(set(rows.tolist())) == min(count, most)
    assert count < 2 or (rows[0], rows[-1]) == (0, count - 1)


@pytest.mark.parametrize("count", [0, 1, 20_000, 20_001, 90_000])
def test_blocks_cover_every_row_once(count: int) -> None:
    covered = [row for part in blocks(count) for row in range(count)[part]]
    assert covered == list(range(count))


@pytest.mark.usefixtures("all_is_large")
def test_neighbours_in_cells_are_nearly_those_of_all(
    target: tuple[Points, Ids], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = nearest_others(target[0], 10)
    monkeypatch.setattr(neighbours, "LARGE", ROWS)
    exact = nearest_others(target[0], 10)
    shared = [len(set(a) & set(b)) for a, b in zip(found.tolist(), exact.tolist(), strict=True)]
    assert found.shape == exact.shape
    assert not (found == np.arange(ROWS)[:, None]).any()
    assert np.mean(shared) > 9.8


@pytest.mark.usefixtures("all_is_large")
def test_neighbours_are_found_among_copies_and_in_lonely_cells() -> None:
    points = np.random.default_rng(0).normal(size=(700, 6)).astype(np.float32)
    points[:650] = points[0]
    found = nearest_others(points, 10)
    assert found.shape == (700, 10)
    assert not (found == np.arange(700)[:, None]).any()
    assert all(len(set(row)) == 10 for row in found.tolist())
    assert (found[:650] < 650).all()


def test_columns_spread_together_as_each_alone(
    target: tuple[Points, Ids], monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = neighbour_graph(target[0])
    columns = np.random.default_rng(1).random((ROWS, 5))
    columns[:, 3] = 0  # converged from the start
    alone, logits = spread(columns, graph, 0.9), propagate(np.log(columns + 0.1), graph, 0.9)
    monkeypatch.setattr(propagation, "LARGE", 500)
    monkeypatch.setattr(propagation, "_TOGETHER", 2)
    np.testing.assert_allclose(spread(columns, graph, 0.9), alone, atol=1e-4)
    together = propagate(np.log(columns + 0.1), graph, 0.9)
    np.testing.assert_allclose(together, logits, atol=1e-3)


@pytest.mark.usefixtures("all_is_large")
@pytest.mark.parametrize("side", ["backbone", "both", "features"])
def test_components_of_a_large_set_keep_its_distances(
    target: tuple[Points, Ids], side: str
) -> None:
    features, _ = target
    config, rows = TrainConfig(cluster_space=side), np.arange(ROWS)[::-1]
    points = cluster_space(features[:, :40], features, rows, config)
    assert points.shape == (ROWS, min(256, {"features": 40}.get(side, WIDTH)))
    units = normalised(features)[rows] if side == "backbone" else None
    if units is not None:
        before = np.linalg.norm(units[0] - units, axis=1)
        after = np.linalg.norm(points[0] - points, axis=1)
        assert np.corrcoef(before, after)[0, 1] > 0.999


@pytest.mark.usefixtures("all_is_large")
def test_k_means_of_a_sample_finds_the_classes_of_all(target: tuple[Points, Ids]) -> None:
    features, labels = target
    found = cluster(normalised(features), CLASSES, restarts=3, seed=0)
    assert clustering_accuracy(found.labels, labels) > 0.95
    assert found.sse == pytest.approx(
        ((normalised(features) - found.centroids[found.labels]) ** 2).sum(), rel=1e-4
    )


@pytest.mark.usefixtures("all_is_large")
@pytest.mark.parametrize("spherical", [False, True])
def test_k_means_of_a_few_distinct_points_needs_no_more_clusters(spherical: bool) -> None:
    points = np.repeat(np.eye(3, dtype=np.float32), 400, axis=0)
    found = cluster(points, 5, restarts=2, seed=0, spherical=spherical)
    assert found.sse == pytest.approx(0, abs=1e-6)
    assert clustering_accuracy(found.labels, np.repeat(np.arange(3), 400)) == 1


@pytest.mark.usefixtures("all_is_large")
def test_one_run_of_k_means_does_not_depend_on_the_threads_of_the_libraries(
    target: tuple[Points, Ids],
) -> None:
    found = []
    for count in (1, 2, 4):
        with threadpool_limits(count):
            found.append(cluster(target[0], CLASSES, restarts=1, seed=0))
    assert len({run.sse for run in found}) == 1
    for run in found[1:]:
        np.testing.assert_array_equal(run.centroids, found[0].centroids)


@pytest.mark.usefixtures("all_is_large")
def test_no_step_copies_the_features_of_the_backbone(
    target: tuple[Points, Ids], monkeypatch: pytest.MonkeyPatch
) -> None:
    features, labels = target
    source, known = features[:300], labels[:300]
    monkeypatch.setattr(whitening, "_COMPONENTS", 16)
    fitted, config = fit_whitening(source, known, features), TrainConfig(pca=16)
    assert peak_of(lambda: fit_whitening(source, known, features)) < 1.5
    assert peak_of(lambda: fitted.target(features)) < 1.5
    assert peak_of(lambda: cluster_space(features, features, np.arange(ROWS), config)) < 1.5
    assert peak_of(lambda: remember("", features, labels, CLASSES)) < 1.5


@pytest.mark.usefixtures("all_is_large")
def test_results_do_not_depend_on_the_number_of_cpus(
    target: tuple[Points, Ids], monkeypatch: pytest.MonkeyPatch
) -> None:
    features, labels = normalised(target[0]), target[1]
    found = []
    for cpus in (1, 2, 5):
        monkeypatch.setattr(threads, "usable_cpus", partial(int, cpus))
        domains = Comparison(features[:300], labels[:300], features)
        clusters = cluster(features, CLASSES, restarts=3, seed=0)
        among = nearest_among(features, features[:300], 5)
        found.append((domains.near, domains.trusted, among, clusters.labels, clusters.centroids))
    for others in found[1:]:
        for one, other in zip(found[0], others, strict=True):
            np.testing.assert_array_equal(one, other)


def test_neighbours_do_not_depend_on_how_the_search_is_divided(
    target: tuple[Points, Ids],
) -> None:
    rng = np.random.default_rng(0)
    close = np.repeat(rng.standard_normal((95, 128)), 100, axis=0)  # narrow, and nearly copies
    close += 0.03 * rng.standard_normal(close.shape)
    for points, rows in ((target[0], 19), (target[0], 1029), (close.astype(np.float32), 9500)):
        with one_thread():  # some processors round otherwise where several share a product
            _, whole = nearest(build_index(points), points[:rows], 10)
        np.testing.assert_array_equal(nearest_among(points[:rows], points, 10), whole)
