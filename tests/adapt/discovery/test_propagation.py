import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.special import softmax

from scda.adapt.discovery.kmeans import Points
from scda.adapt.discovery.propagation import neighbour_graph, propagate, spread

# Conjugate gradients stop at a residual of 1e-5; alpha 0.98 makes up to 50 times that of it.
SOLVER = 1e-3


def cloud(images: int = 12, *, seed: int = 0, centre: float = 0.0) -> Points:
    points = np.random.default_rng(seed).normal(centre, 1, (images, 4))
    return points.astype(np.float32)


def two_groups(each: int = 10) -> Points:
    noise = np.random.default_rng(0).normal(0, 0.1, (2 * each, 3))
    return (np.repeat(np.eye(3)[:2], each, axis=0) + noise).astype(np.float32)


def dense(graph: csr_array) -> NDArray[np.float64]:
    return np.asarray(graph.toarray(), np.float64)


def graph_by_hand(rows: list[list[float]], neighbours: int) -> list[list[float]]:
    def cosine(i: int, j: int) -> float:
        dot = sum(a * b for a, b in zip(rows[i], rows[j], strict=True))
        lengths = sum(a * a for a in rows[i]) * sum(b * b for b in rows[j])
        return float(dot / lengths**0.5)

    images = range(len(rows))
    begun = [[0.0] * len(rows) for _ in images]
    for i in images:
        nearest = sorted((j for j in images if j != i), key=lambda j: -cosine(i, j))
        for j in nearest[:neighbours]:
            begun[i][j] = max(cosine(i, j), 0.0) ** 3
    joined = [[(begun[i][j] + begun[j][i]) / 2 for j in images] for i in images]
    sums = [sum(row) for row in joined]
    return [
        [joined[i][j] / (sums[i] * sums[j]) ** 0.5 if joined[i][j] else 0.0 for j in images]
        for i in images
    ]


def spread_by_hand(
    columns: NDArray[np.float64], graph: csr_array, alpha: float
) -> NDArray[np.float64]:
    system = np.eye(len(columns)) - alpha * dense(graph)
    return np.asarray(np.linalg.solve(system, columns), np.float64)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("centre", [0.0, 3.0])
def test_the_graph_is_its_definition(seed: int, centre: float) -> None:
    points = cloud(seed=seed, centre=centre)
    expected = graph_by_hand(points.tolist(), 5)
    # float32 cosines
    np.testing.assert_allclose(dense(neighbour_graph(points)), expected, atol=1e-5)


def test_the_graph_of_three_images_worked_by_hand() -> None:
    points = np.array([[1, 0], [1, 0], [-1, 0]], np.float32)
    # Cosines 1, -1 and -1: an edge of 1 between the first two, whose sums are 1; none else.
    assert dense(neighbour_graph(points)).tolist() == [[0, 1, 0], [1, 0, 0], [0, 0, 0]]


def test_the_graph_is_symmetric_without_self_edges_and_scaled() -> None:
    graph = dense(neighbour_graph(cloud(40)))
    np.testing.assert_allclose(graph, graph.T)
    assert (graph.diagonal() == 0).all()
    assert (graph >= 0).all()
    assert np.linalg.eigvalsh(graph).max() == pytest.approx(1)  # so I - alpha * graph is positive


def test_lengths_of_features_do_not_matter() -> None:
    points = cloud()
    lengths = np.random.default_rng(1).uniform(0.1, 100, (12, 1)).astype(np.float32)
    np.testing.assert_allclose(
        dense(neighbour_graph(points * lengths)), dense(neighbour_graph(points)), atol=1e-5
    )


def test_another_order_of_images_is_the_same_graph() -> None:
    points, order = cloud(), np.random.default_rng(1).permutation(12)
    expected = dense(neighbour_graph(points))[order][:, order]
    np.testing.assert_allclose(dense(neighbour_graph(points[order])), expected, atol=1e-6)


@pytest.mark.parametrize("images", [1, 2, 3, 5, 6, 7])
def test_fewer_images_than_neighbours_are_enough(images: int) -> None:
    points = cloud(images, centre=3)
    graph = neighbour_graph(points)
    assert graph.shape == (images, images)
    np.testing.assert_allclose(dense(graph), graph_by_hand(points.tolist(), 5), atol=1e-5)
    logits = np.random.default_rng(0).normal(size=(images, 3)).astype(np.float32)
    assert np.isfinite(propagate(logits, graph, 0.98)).all()


@pytest.mark.parametrize("copies", [2, 9, 30])
def test_duplicates_have_no_edge_to_themselves(copies: int) -> None:
    points = np.concatenate([np.repeat(cloud(1), copies, axis=0), cloud(12, seed=1)])
    graph = dense(neighbour_graph(points))
    assert (graph.diagonal() == 0).all()
    np.testing.assert_allclose(graph, graph.T)
    assert np.isfinite(graph).all()
    assert (graph[:copies].sum(axis=1) > 0).all()


def test_an_image_without_features_keeps_its_prediction() -> None:
    points = np.concatenate([cloud(8, centre=3), np.zeros((1, 4), np.float32)])
    logits = np.random.default_rng(0).normal(size=(9, 3)).astype(np.float32)
    spread = propagate(logits, neighbour_graph(points), 0.98)
    np.testing.assert_allclose(softmax(spread[8]), softmax(logits[8]), atol=1e-6)


@pytest.mark.parametrize("alpha", [0.0, 0.3, 0.9])
def test_what_spreads_keeps_its_scale(alpha: float) -> None:
    graph, columns = neighbour_graph(cloud()), cloud(seed=1)
    expected = (1 - alpha) * spread_by_hand(columns.astype(np.float64), graph, alpha)
    np.testing.assert_allclose(spread(columns, graph, alpha), expected, atol=SOLVER)


@pytest.mark.parametrize("alpha", [0.3, 0.9, 0.98])
@pytest.mark.parametrize("seed", range(3))
def test_propagated_is_the_dense_solution(seed: int, alpha: float) -> None:
    graph = neighbour_graph(cloud(seed=seed))
    logits = np.random.default_rng(seed).normal(0, 2, (12, 4)).astype(np.float32)
    alone = np.array([np.exp(row) / np.exp(row).sum() for row in logits.astype(np.float64)])
    solved = spread_by_hand(alone, graph, alpha)
    expected = np.array([row / sum(row) for row in solved])
    np.testing.assert_allclose(np.exp(propagate(logits, graph, alpha)), expected, atol=SOLVER)


def test_propagated_is_log_probabilities_of_every_image() -> None:
    logits = np.random.default_rng(0).normal(0, 5, (12, 4)).astype(np.float32)
    spread = propagate(logits, neighbour_graph(cloud()), 0.98)
    assert spread.shape == (12, 4)
    assert spread.dtype == np.float32
    np.testing.assert_allclose(np.exp(spread).sum(axis=1), 1, atol=1e-5)


def test_an_alpha_of_0_changes_no_probability() -> None:
    logits = np.random.default_rng(0).normal(0, 2, (12, 4)).astype(np.float32)
    spread = propagate(logits, neighbour_graph(cloud()), 0)
    np.testing.assert_allclose(softmax(spread, axis=1), softmax(logits, axis=1), atol=1e-6)


def test_what_was_given_is_left_as_it_was() -> None:
    graph, logits = neighbour_graph(cloud()), cloud(seed=1)
    edges, before = dense(graph), logits.copy()
    propagate(logits, graph, 0.9)
    np.testing.assert_array_equal(dense(graph), edges)
    np.testing.assert_array_equal(logits, before)


def test_an_image_alone_among_those_of_another_class_is_corrected() -> None:
    classes = np.repeat([0, 1], 10)
    called = classes.copy()
    called[3] = 1
    logits = (4 * np.eye(2)[called]).astype(np.float32)
    graph = neighbour_graph(two_groups())
    assert propagate(logits, graph, 0.98).argmax(axis=1).tolist() == classes.tolist()
    assert propagate(logits, graph, 0.01).argmax(axis=1).tolist() == called.tolist()


def test_renaming_classes_renames_predictions() -> None:
    graph, order = neighbour_graph(cloud()), [2, 0, 3, 1]
    logits = np.random.default_rng(0).normal(0, 2, (12, 4)).astype(np.float32)
    expected = np.exp(propagate(logits, graph, 0.9)[:, order])
    actual = np.exp(propagate(logits[:, order], graph, 0.9))
    np.testing.assert_allclose(actual, expected, atol=1e-6)


@pytest.mark.parametrize("extreme", [1e4, 1e30])
def test_extreme_logits_stay_finite(extreme: float) -> None:
    logits = (extreme * np.eye(4)[np.arange(12) % 4]).astype(np.float32)
    assert np.isfinite(propagate(logits, neighbour_graph(cloud()), 0.98)).all()


def test_a_class_that_nobody_is_called_stays_finite_and_unlikely() -> None:
    logits = np.tile(np.array([5, 4, -1e6], np.float32), (12, 1))
    spread = propagate(logits, neighbour_graph(cloud()), 0.98)
    assert np.isfinite(spread).all()
    assert (np.exp(spread[:, 2]) < 1e-9).all()
