import itertools

import numpy as np
import pytest
from scipy.sparse import csr_array

from scda.adapt.discovery.discover import Discovery, without_outputs
from scda.adapt.discovery.kmeans import Points
from scda.adapt.discovery.novelty.comparison import Comparison
from scda.adapt.discovery.novelty.false_classes import kept_outputs
from scda.adapt.discovery.novelty.landing import believed, landing
from scda.adapt.discovery.novelty.orphans import (
    LEAST_EVIDENCE,
    Orphans,
    find_orphans,
    known_posterior,
    walked,
)
from scda.adapt.discovery.novelty.places import class_places, remoteness
from scda.adapt.discovery.novelty.walk import walk
from scda.adapt.discovery.novelty.whitening import fit_whitening
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
    given: Ids | None = None,
) -> Orphans:
    """Return the decision where pre-training has no opinion."""
    whitening = fit_whitening(source, labels, target)
    points = whitening.target(target)
    num_known = int(labels.max()) + 1
    probabilities = np.full((len(target), num_known + 1), (1 - unknown) / num_known)
    probabilities[:, -1] = unknown
    logits = np.log(probabilities).astype(np.float32)
    domains = Comparison(whitening.source(source), labels, points)
    return find_orphans(domains, logits, gate=gate, given=given)


@pytest.mark.parametrize("new", [[6], [6, 7], [6, 7, 8, 9, 10, 11]])
def test_new_classes_are_found_whether_few_or_many(new: list[int]) -> None:
    target, truth = groups([0, 1, 2, 3, 4, 5, *new], 20, shift=0.3, seed=1)
    found = decided(target)
    assert (found.new == (truth >= 6)).mean() > 0.95
    assert (found.posterior[truth < 6].argmax(axis=1) == truth[truth < 6]).mean() > 0.95


def test_labelled_images_are_what_they_are_and_tell_their_neighbours() -> None:
    target, truth = groups([0, 1, 2, 3, 4, 5, 6], 20, shift=0.3, seed=1)
    found, rows = decided(target), np.flatnonzero(truth == 6)
    given = np.full(len(target), -1)
    given[rows[:8]], given[0] = 5, 6  # of a new class they are known to be of class 5
    told = decided(target, gate=False, given=given)
    assert not told.new[rows[:8]].any()
    assert (told.posterior[rows[:8]].argmax(axis=1) == 5).all()
    assert told.evidence[rows[8:]].mean() < found.evidence[rows[8:]].mean() - 0.5
    assert told.new[0]
    assert not found.new[0]


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
    assert found.total < LEAST_EVIDENCE


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
    assert np.allclose(np.exp(found.known_logits), posterior)  # of new images, too


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


def test_a_landing_where_the_class_is_not_similar_counts_less() -> None:
    landed = np.ones((2, 2), np.float32)
    similar = np.array([[0.8, 0.1], [-0.2, 0.8]], np.float32)
    expected = [[1, (0.1 / 0.4) ** 2], [1e-4, 1]]
    np.testing.assert_allclose(believed(landed, similar), expected, rtol=1e-4)


def test_the_posterior_multiplies_both_witnesses() -> None:
    landed = np.array([[0.5, 0.25]], np.float32)
    found = known_posterior(landed, np.array([[0.1, 0.4, 0.5]]))
    np.testing.assert_allclose(found, [[0.05 / 0.15, 0.1 / 0.15]], rtol=1e-4)


def test_a_group_that_touches_only_its_class_comes_home_and_one_that_stands_alone_does_not() -> (
    None
):
    near = np.array([[1, 2], [0, 2], [0, 1], [0, 1], [1, 3], [6, 7], [5, 7], [5, 6]])
    evidence = np.array([-3, -3, -3, 0.5, 0.5, 0.5, 0.5, 0.5], np.float32)
    posterior = np.tile(np.array([0.9, 0.1], np.float32), (8, 1))
    assert (walked(posterior, evidence, near) > 0).tolist() == [False] * 5 + [True] * 3


def test_walks_that_end_among_several_classes_count_against_each_of_them() -> None:
    near = np.array([[2, 3], [2, 3], [0, 1], [0, 1]])
    evidence = np.zeros(4, np.float32)
    one, several = np.array([[1.0, 0.0]]), np.array([[0.5, 0.5]])
    assert walked(one.repeat(4, axis=0).astype(np.float32), evidence, near) == pytest.approx(0)
    found = walked(several.repeat(4, axis=0).astype(np.float32), evidence, near)
    assert found == pytest.approx(np.log(2), abs=1e-5)


@pytest.mark.parametrize("reach", [0.0, 0.5, 0.9])
def test_the_walk_is_its_definition(reach: float) -> None:
    rng = np.random.default_rng(0)
    near = np.array(
        [rng.choice(np.delete(np.arange(9), row), 3, replace=False) for row in range(9)]
    )
    columns = rng.normal(size=(9, 2)).astype(np.float32)
    steps = np.zeros((9, 9))
    for row, others in enumerate(near):
        for other in others:
            steps[row, other] += 1
            steps[other, row] += 1
    steps /= steps.sum(axis=1, keepdims=True)
    expected, reached = np.zeros((9, 2)), (1 - reach) * np.eye(9)
    for _ in range(400):
        expected += reached @ columns
        reached = reach * reached @ steps
    np.testing.assert_allclose(walk(columns, near, reach), expected, atol=1e-3)


def test_remoteness_is_measured_between_the_own_and_the_next_class() -> None:
    places = np.eye(3, dtype=np.float32)[:2]
    half_way = np.array([0.5, 0, 0.75**0.5], np.float32)
    target = np.concatenate([places.repeat(4, axis=0), [half_way], np.eye(3)[2:]])
    certain = [np.arange(4), np.arange(4, 8)]
    alone = csr_array((10, 10))  # no neighbours
    found = remoteness(places, places, target.astype(np.float32), alone, certain)
    np.testing.assert_allclose(found, [-1] * 8 + [0, 1], atol=1e-5)


def test_the_place_of_a_class_that_looks_different_in_the_source_counts_less() -> None:
    target = np.eye(6, dtype=np.float32).repeat(2, axis=0)
    places, centres = np.eye(6, dtype=np.float32)[:5], np.eye(6, dtype=np.float32)[:5].copy()
    centres[4] = np.eye(6)[5]
    certain = [np.arange(2 * label, 2 * label + 2) for label in range(4)]
    found = remoteness(places, centres, target, csr_array((12, 12)), certain)
    np.testing.assert_allclose(found, [-1] * 8 + [1] * 4, atol=1e-3)


def test_places_are_the_centres_of_certain_images_that_are_known() -> None:
    target = normalised(np.array([[1, 0], [1, 0], [1, 1], [0, 1], [0, 1]], np.float32))
    posterior = np.array([[1, 0], [1, 0], [1, 0], [0, 1], [1, 0]], np.float32)
    evidence = np.array([-4, -4, -4, -4, 4], np.float32)
    certain = [np.array([0, 1]), np.array([3, 4])]
    found = class_places(target, posterior, evidence, certain)
    np.testing.assert_allclose(found, np.eye(2), atol=1e-3)


def test_a_class_without_certain_images_has_a_place_too() -> None:
    target = np.eye(2, dtype=np.float32)
    found = class_places(target, target, np.zeros(2, np.float32), [np.array([0])])
    np.testing.assert_allclose(found, np.eye(2), atol=1e-6)


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


def test_of_classes_that_all_have_known_neighbours_the_least_leaky_one_is_kept() -> None:
    labels = [0] * 6 + [2] * 6 + [3] * 6
    logits = logits_of(labels, 4)
    near = np.array([[0, 1, 2]] * 18)  # known neighbours for all
    near[12:, 0] = 12  # but one in three of the last class's
    assert kept_outputs(logits, near, 2).tolist() == [0, 1, 3]
    few = logits_of([0] * 16 + [2] * 2, 3)  # too few images to be a class
    assert kept_outputs(few, near, 2).tolist() == [0, 1]


def test_a_discovery_without_dropped_outputs_is_renumbered() -> None:
    candidates = Candidates(np.array([0]), np.array([1]), np.array([3, 4, 5, 6]))
    found = Discovery(3, candidates, np.array([0, 1, 2, 1]), k_path=(2, 3))
    left = without_outputs(found, np.array([0, 1, 2, 4]), 2)
    assert (left.k_star, left.k_path) == (2, (2, 2))
    assert left.candidates.implicit.tolist() == [3, 5]
    assert left.implicit_labels.tolist() == [0, 1]
