import numpy as np
import pytest

from scda.adapt.kmeans import Points
from scda.adapt.novelty import SURE_AGREEMENT, closed, disagreement, verdict


def groups(each: int = 30) -> Points:
    rng = np.random.default_rng(0)
    centres = np.repeat(np.eye(3), each, axis=0)
    return (centres + rng.normal(0, 0.05, (3 * each, 3))).astype(np.float32)


def disagreement_by_hand(labels: list[int], rows: list[list[float]], neighbours: int) -> float:
    def cosine(i: int, j: int) -> float:
        dot = sum(a * b for a, b in zip(rows[i], rows[j], strict=True))
        lengths = sum(a * a for a in rows[i]) * sum(b * b for b in rows[j])
        return float(dot / lengths**0.5)

    alone = 0
    for i in range(len(labels)):
        others = sorted((j for j in range(len(labels)) if j != i), key=lambda j: -cosine(i, j))
        shared = [labels[j] == labels[i] for j in others[:neighbours]]
        alone += sum(shared) < len(shared) / 2
    return alone / len(labels)


@pytest.mark.parametrize("seed", range(3))
def test_disagreement_is_its_definition(seed: int) -> None:
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(40, 5)).astype(np.float32)
    labels = rng.integers(0, 3, 40)
    expected = disagreement_by_hand(labels.tolist(), features.tolist(), 10)
    assert disagreement(labels, features) == pytest.approx(expected)


def test_whole_groups_of_one_label_do_not_disagree() -> None:
    assert disagreement(np.arange(90) // 30, groups()) == 0


def test_a_group_of_scattered_labels_disagrees() -> None:
    labels = np.arange(90) // 30
    labels[60:] = np.arange(30) % 3  # a new class whose images got three known labels
    assert disagreement(labels, groups()) == pytest.approx(1 / 3, abs=0.05)


def test_fewer_images_than_neighbours_are_enough() -> None:
    features = np.eye(3, dtype=np.float32)
    assert disagreement(np.array([0, 0, 0]), features) == 0
    assert disagreement(np.array([0, 1, 2]), features) == 1
    assert disagreement(np.array([0, 1]), features[:2]) == 1
    assert disagreement(np.array([0]), features[:1]) == 0


def test_a_closed_round_chooses_among_known_classes_alone() -> None:
    rng = np.random.default_rng(0)
    logits = rng.normal(0, 2, (30, 4)).astype(np.float32)
    logits[:, 3] += 100  # all called unknown
    found = closed(logits, 3, ["a note"])
    predicted = logits[:, :3].argmax(axis=1)
    assert found.k_star == 0
    assert len(found.candidates.implicit) == len(found.implicit_labels) == 0
    assert found.notes == ["a note"]
    np.testing.assert_array_equal(found.candidates.known_labels, predicted[found.candidates.known])
    halves = [-(-(predicted == label).sum() // 2) for label in range(3)]
    assert np.bincount(found.candidates.known_labels).tolist() == halves


def test_a_closed_round_does_not_share_its_notes() -> None:
    notes: list[str] = []
    closed(np.zeros((2, 3), np.float32), 2, notes).notes.append("later")
    assert notes == []


def test_the_verdict_names_its_figure_and_what_may_be_missed() -> None:
    assert verdict(SURE_AGREEMENT).startswith("nothing new found: 3.8% of the target disagree")
    assert "could be missed" in verdict(0)


def test_above_the_threshold_the_verdict_is_uncertain_and_says_what_to_do() -> None:
    assert verdict(SURE_AGREEMENT + 1e-6).startswith("uncertain: 3.8% of the target disagree")
    assert "--novel yes" in verdict(0.2)
