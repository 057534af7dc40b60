import itertools

import numpy as np
import pytest
from scipy.sparse import csr_array

from scda.adapt.discovery.discover import Discovery, without_outputs
from scda.adapt.discovery.kmeans import Points
from scda.adapt.discovery.novelty.cut import cheapest_cut
from scda.adapt.discovery.novelty.false_classes import kept_outputs
from scda.adapt.discovery.novelty.landing import believed, diffuse, landing
from scda.adapt.discovery.novelty.orphans import Orphans, find_orphans, known_posterior
from scda.adapt.discovery.novelty.whitening import fit_whitening
from scda.adapt.discovery.propagation import neighbour_graph
from scda.adapt.discovery.selection import Candidates, select
from scda.models.index import Ids, normalised
from tests.adapt.discovery.two_domains import groups

SOURCE, LABELS = groups([0, 1, 2, 3, 4, 5], 20, shift=0.0, seed=0)


def decided(
    target: Points,
    *,
    source: Points = SOURCE,
    labels: Ids = LABELS,
    gate: bool = True,
    unknown: float = 0.3,
) -> Orphans:
    """Return the decision where pre-training has no opinion."""
    whitening = fit_whitening(source, labels, target)
    points = whitening.target(target)
    num_known = int(labels.max()) + 1
    probabilities = np.full((len(target), num_known + 1), (1 - unknown) / num_known)
    probabilities[:, -1] = unknown
    logits = np.log(probabilities).astype(np.float32)
    sources, graph = whitening.source(source), neighbour_graph(points)
    return find_orphans(sources, labels, points, graph, logits, gate=gate)


@pytest.mark.parametrize("new", [[6], [6, 7], [6, 7, 8, 9, 10, 11]])
def test_new_classes_are_found_whether_few_or_many(new: list[int]) -> None:
    target, truth = groups([0, 1, 2, 3, 4, 5, *new], 20, shift=0.3, seed=1)
    found = decided(target)
    assert (found.new == (truth >= 6)).mean() > 0.95
    assert (found.posterior[truth < 6].argmax(axis=1) == truth[truth < 6]).mean() > 0.95


def test_nothing_is_new_where_nothing_is() -> None:
    target, _ = groups([0, 1, 2, 3, 4, 5], 20, shift=0.3, seed=1)
    assert not decided(target).new.any()


def test_too_little_evidence_is_nothing_unless_the_user_knows_better() -> None:
    known, _ = groups([0, 1, 2, 3, 4, 5], 40, shift=0.3, seed=1)
    few, _ = groups([6], 8, shift=0.3, seed=2)
    target = np.concatenate([known, few])
    assert not decided(target).new.any()
    found = decided(target, gate=False)
    assert found.new[-8:].all()
    assert found.total < 1.5


@pytest.mark.parametrize(
    ("source", "labels", "target"),
    [
        (SOURCE, LABELS, SOURCE[:3]),  # fewer images than neighbours
        (SOURCE, LABELS, SOURCE[:2]),
        (SOURCE[:40], LABELS[:40], SOURCE),
        (SOURCE[::20], LABELS[::20], SOURCE),
        (np.ones_like(SOURCE), LABELS, np.ones_like(SOURCE)),
        (np.zeros_like(SOURCE), LABELS, np.zeros_like(SOURCE)),
        (SOURCE, LABELS, np.repeat(SOURCE[:1], 30, axis=0)),
        (SOURCE, LABELS, np.concatenate([SOURCE, SOURCE])),
    ],
)
@pytest.mark.parametrize("unknown", [0.0, 0.3, 1.0])
@pytest.mark.filterwarnings("ignore:divide by zero")
def test_tiny_equal_and_constant_domains_give_finite_numbers(
    source: Points, labels: Ids, target: Points, unknown: float
) -> None:
    found = decided(target, source=source, labels=labels, unknown=unknown)
    assert np.isfinite(found.evidence).all()
    assert np.isfinite(found.logits).all()
    np.testing.assert_allclose(found.posterior.sum(axis=1), 1, atol=1e-4)


def test_the_decision_as_logits_selects_new_images_and_sure_known_ones() -> None:
    posterior = np.array([[0.9, 0.1], [0.6, 0.4], [0.2, 0.8], [0.5, 0.5]], np.float32)
    new = np.array([False, False, False, True])
    found = Orphans(posterior, np.zeros(4, np.float32), new, 2.0)
    candidates = select(found.logits, num_known=2, implicit_share="all")
    assert candidates.known.tolist() == [0, 2]
    assert candidates.known_labels.tolist() == [0, 1]
    assert candidates.implicit.tolist() == [3]


def test_landing_without_neighbours_is_its_definition() -> None:
    rng = np.random.default_rng(0)
    source = normalised(rng.normal(size=(9, 4)).astype(np.float32))
    target = normalised(rng.normal(size=(5, 4)).astype(np.float32))
    labels = np.array([0, 0, 1, 1, 1, 2, 2, 2, 2])
    found = landing(source, labels, target, csr_array((5, 5)))
    for image, label in itertools.product(range(5), range(3)):
        shares = []
        for point in source[labels == label]:
            weights = np.exp(point @ target.T / 0.035)
            shares.append(weights[image] / weights.sum())
        expected = 0.1 * np.mean(shares) * 5 / 3  # a tenth stays, the rest spreads to nobody
        assert found[image, label] == pytest.approx(expected, rel=1e-3, abs=1e-6)


def test_diffusion_of_a_symmetric_graph_is_close_to_its_dense_definition() -> None:
    points = np.random.default_rng(0).normal(size=(20, 4)).astype(np.float32)
    graph, columns = neighbour_graph(points), np.eye(20, dtype=np.float32)
    expected = np.asarray(0.1 * np.linalg.inv(np.eye(20) - 0.9 * graph.toarray()), np.float32)
    np.testing.assert_allclose(diffuse(columns, graph), expected, atol=0.05)


def test_a_landing_where_the_class_is_not_similar_counts_less() -> None:
    landed = np.ones((2, 2), np.float32)
    similar = np.array([[0.8, 0.1], [-0.2, 0.8]], np.float32)
    expected = [[1, (0.1 / 0.4) ** 2], [1e-4, 1]]
    np.testing.assert_allclose(believed(landed, similar), expected, rtol=1e-4)


def test_the_posterior_multiplies_both_witnesses() -> None:
    landed = np.array([[0.5, 0.25]], np.float32)
    found = known_posterior(landed, np.array([[0.1, 0.4, 0.5]]))
    np.testing.assert_allclose(found, [[0.05 / 0.15, 0.1 / 0.15]], rtol=1e-4)


@pytest.mark.parametrize("seed", range(6))
def test_the_cut_is_the_best_of_all_labellings(seed: int) -> None:
    rng = np.random.default_rng(seed)
    evidence = rng.normal(size=8).astype(np.float32)
    near = np.array(
        [rng.choice(np.delete(np.arange(8), row), 3, replace=False) for row in range(8)]
    )

    def worth(labelling: tuple[bool, ...]) -> float:
        border: int = sum(labelling[a] != labelling[b] for a in range(8) for b in near[a])
        return float(evidence[list(labelling)].sum() - border / 3 / 2)

    best = max(map(worth, itertools.product([False, True], repeat=8)))
    found = tuple(cheapest_cut(evidence, near, 1.0).tolist())
    assert worth(found) == pytest.approx(best, abs=0.02)


def test_a_single_odd_image_is_no_class_and_a_hole_is_filled() -> None:
    near = np.array([[b for b in range(6) if b != a] for a in range(6)])
    lone = np.array([0.6, -1, -1, -1, -1, -1], np.float32)
    assert not cheapest_cut(lone, near, 1.0).any()
    assert cheapest_cut(-lone, near, 1.0).all()


def logits_of(labels: list[int], outputs: int) -> Points:
    return np.eye(outputs, dtype=np.float32)[labels]


def test_small_and_surrounded_classes_are_dropped() -> None:
    labels = [0] * 6 + [2] * 4 + [3] * 2 + [4] * 4
    logits = logits_of(labels, 5)
    own = [[row for row in range(16) if labels[row] == label] for label in labels]
    near = np.array([(rows * 3)[:3] for rows in own])
    assert kept_outputs(logits, near, 2).tolist() == [0, 1, 2, 4]
    near[12:] = [0, 1, 2]  # the neighbours of the last class are known
    assert kept_outputs(logits, near, 2).tolist() == [0, 1, 2]
    assert kept_outputs(logits[:, :2], near, 2).tolist() == [0, 1]


def test_a_discovery_without_dropped_outputs_is_renumbered() -> None:
    candidates = Candidates(np.array([0]), np.array([1]), np.array([3, 4, 5, 6]))
    found = Discovery(3, candidates, np.array([0, 1, 2, 1]), k_path=(2, 3))
    left = without_outputs(found, np.array([0, 1, 2, 4]), 2)
    assert (left.k_star, left.k_path) == (2, (2, 2))
    assert left.candidates.implicit.tolist() == [3, 5]
    assert left.implicit_labels.tolist() == [0, 1]
