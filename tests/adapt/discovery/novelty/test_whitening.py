import numpy as np
import pytest
import torch

from scda.adapt.discovery.communities import coarsest_of_at_least, shared_neighbours
from scda.adapt.discovery.kmeans import Points
from scda.adapt.discovery.novelty.whitening import fit_whitening
from scda.models.index import Ids, normalised
from scda.models.networks.network import Whitened
from tests.adapt.discovery.two_domains import groups

SOURCE, LABELS = groups([0, 1, 2, 3], 20, shift=0.0, seed=0)
TARGET, TRUTH = groups([0, 1, 2, 3, 4, 5], 20, shift=0.3, seed=1)


def stretched(points: Points, *, seed: int = 5) -> Points:
    """Add a direction that varies much within every class."""
    chance = np.random.default_rng(seed).normal(0, 6, len(points)).astype(np.float32)
    along = np.eye(points.shape[1])[-1]
    return np.asarray(points + chance[:, None] * along, np.float32)


def purity(points: Points, labels: Ids) -> float:
    """Return the share of the five nearest others, by cosine, that have the same label."""
    same = 0
    for row, point in enumerate(points):
        others = [other for other in np.argsort(-(points @ point)) if other != row][:5]
        same += sum(labels[other] == labels[row] for other in others)
    return same / (5 * len(points))


def test_variance_within_classes_is_taken_out() -> None:
    source, target = stretched(SOURCE), stretched(TARGET)
    whitening = fit_whitening(source, LABELS, target)
    before = purity(normalised(target - target.mean(axis=0)), TRUTH)
    assert purity(whitening.target(target), TRUTH) > max(0.95, before)


def test_points_have_length_1_and_are_the_written_formula() -> None:
    whitening = fit_whitening(SOURCE, LABELS, TARGET)
    for row in (0, 7):
        unit = TARGET[row] / np.linalg.norm(TARGET[row])
        projected = (unit - whitening.target_mean) @ whitening.projection
        expected = projected / np.linalg.norm(projected)
        np.testing.assert_allclose(whitening.target(TARGET)[row], expected, atol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(whitening.source(SOURCE), axis=1), 1, atol=1e-5)


def test_each_domain_is_centred_by_itself() -> None:
    near = fit_whitening(SOURCE, LABELS, TARGET)
    np.testing.assert_allclose(near.source_mean, normalised(SOURCE).mean(axis=0), atol=1e-6)
    np.testing.assert_allclose(near.target_mean, normalised(TARGET).mean(axis=0), atol=1e-6)


def test_the_exported_module_whitens_as_training_does() -> None:
    whitening = fit_whitening(SOURCE, LABELS, TARGET)
    mean, projection = map(torch.from_numpy, (whitening.target_mean, whitening.projection))
    module = Whitened(mean, projection, 15.0)
    expected = 15 * whitening.target(TARGET)
    np.testing.assert_allclose(module(torch.from_numpy(TARGET)).numpy(), expected, atol=1e-4)


def test_the_same_features_give_the_same_space() -> None:
    one, two = (fit_whitening(SOURCE, LABELS, TARGET) for _ in range(2))
    np.testing.assert_array_equal(one.projection, two.projection)


@pytest.mark.parametrize(
    ("source", "labels", "target"),
    [
        (SOURCE[::20], LABELS[::20], TARGET),  # one image per class
        (SOURCE, LABELS, TARGET[:3]),  # fewer images than neighbours
        (SOURCE, LABELS, TARGET[:2]),
        (SOURCE[:40], LABELS[:40], TARGET),  # two classes
        (np.ones_like(SOURCE), LABELS, np.ones_like(TARGET)),  # constant features
        (np.zeros_like(SOURCE), LABELS, TARGET),
        (SOURCE, LABELS, np.repeat(TARGET[:1], 30, axis=0)),  # copies of one image
        (SOURCE[:, :1], LABELS, TARGET[:, :1]),
    ],
)
def test_tiny_equal_and_constant_domains_stay_finite(
    source: Points, labels: Ids, target: Points
) -> None:
    whitening = fit_whitening(source, labels, target)
    for points in (whitening.source(source), whitening.target(target)):
        assert np.isfinite(points).all()
        assert (np.linalg.norm(points, axis=1) < 1 + 1e-4).all()


def test_shared_neighbours_are_their_definition() -> None:
    points = normalised(TARGET)
    near = [set(np.argsort(-(points @ point))[:11].tolist()) for point in points]
    graph = shared_neighbours(TARGET).toarray()
    for a, b in ((0, 1), (5, 9), (0, 119), (30, 33)):
        joined = b in near[a] or a in near[b]
        expected = len(near[a] & near[b]) / len(near[a] | near[b]) if joined else 0
        assert graph[a, b] == pytest.approx(expected)
    np.testing.assert_allclose(graph, graph.T)


def test_the_coarsest_communities_that_are_enough_are_taken() -> None:
    graph = shared_neighbours(TARGET)
    sizes = [coarsest_of_at_least(graph, count).max() + 1 for count in (1, 6, 18)]
    assert sizes[0] == sizes[1] == 6
    assert sizes[2] >= 18
