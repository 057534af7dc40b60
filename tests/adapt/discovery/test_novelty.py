import math
import statistics
from dataclasses import dataclass, replace

import numpy as np
import pytest

from scda.adapt.discovery import novelty
from scda.adapt.discovery.discover import Discovery
from scda.adapt.discovery.findings import Finding, Status
from scda.adapt.discovery.kmeans import Points
from scda.adapt.discovery.novelty import (
    MAX_DISAGREEMENT,
    closed_round,
    judge_closed_round,
    neighbour_disagreement,
    relative_distance,
    suspect_candidates,
)
from scda.adapt.discovery.propagation import neighbour_graph
from scda.adapt.discovery.selection import empty_ids
from scda.models.index import Ids


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
    assert neighbour_disagreement(labels, features) == pytest.approx(expected)


def test_whole_groups_of_one_label_do_not_disagree() -> None:
    assert neighbour_disagreement(np.arange(90) // 30, groups()) == 0


def test_a_group_of_scattered_labels_disagrees() -> None:
    labels = np.arange(90) // 30
    labels[60:] = np.arange(30) % 3  # a new class whose images got three known labels
    assert neighbour_disagreement(labels, groups()) == pytest.approx(1 / 3, abs=0.05)


def test_fewer_images_than_neighbours_are_enough() -> None:
    features = np.eye(3, dtype=np.float32)
    assert neighbour_disagreement(np.array([0, 0, 0]), features) == 0
    assert neighbour_disagreement(np.array([0, 1, 2]), features) == 1
    assert neighbour_disagreement(np.array([0, 1]), features[:2]) == 1
    assert neighbour_disagreement(np.array([0]), features[:1]) == 0


def remoteness_by_hand(
    logits: list[list[float]], rows: list[list[float]], known: int
) -> list[float]:
    def unit(row: list[float]) -> list[float]:
        length = math.sqrt(sum(value * value for value in row))
        return [value / length for value in row]

    def entropy(row: list[float]) -> float:
        shares = [math.exp(value) / sum(map(math.exp, row)) for value in row]
        return -sum(share * math.log(share) for share in shares)

    distances: dict[int, tuple[int, float]] = {}
    usual: dict[int, float] = {}
    for label in range(known):
        members = [i for i, row in enumerate(logits) if row.index(max(row)) == label]
        surest = sorted(members, key=lambda i: entropy(logits[i]))[: math.ceil(len(members) / 2)]
        if not members:
            continue
        sums = [sum(unit(rows[i])[d] for i in surest) for d in range(len(rows[0]))]
        centre = unit(sums)
        away = {
            i: 1 - sum(a * b for a, b in zip(unit(rows[i]), centre, strict=True)) for i in members
        }
        kept = sorted(away[i] for i in surest)
        place = 0.9 * (len(kept) - 1)  # between two of them, as most programs take quantiles
        low, part = int(place), place - int(place)
        usual[label] = kept[low] + part * (kept[min(low + 1, len(kept) - 1)] - kept[low])
        distances |= {i: (label, away[i]) for i in members}
    least = statistics.median(usual.values()) / 2
    found = [distances[i] for i in range(len(rows))]
    return [distance / max(usual[label], least) for label, distance in found]


@dataclass
class Closed:
    """A closed round on three known classes and ten images of a new one, 60 to 69."""

    logits: Points
    backbone: Points
    labels: Ids

    def judge(self, suspects: Ids) -> Discovery:
        found = closed_round(self.logits, None, suspects)
        return judge_closed_round(
            found, self.logits, self.backbone, neighbour_graph(self.backbone), 3
        )


def with_few_new(*, scattered: bool = True) -> Closed:
    rng = np.random.default_rng(0)
    groups = np.repeat(np.arange(4), [20, 20, 20, 10])
    backbone = (np.eye(4)[groups] + rng.normal(0, 0.05, (70, 4))).astype(np.float32)
    labels = groups.copy()
    labels[60:] = np.arange(10) % 3 if scattered else 1
    certainty = np.where(groups < 3, 6, 1) + rng.uniform(0, 0.5, 70)
    return Closed((certainty[:, None] * np.eye(3)[labels]).astype(np.float32), backbone, labels)


@pytest.mark.parametrize("seed", range(4))
def test_remoteness_is_its_definition(seed: int) -> None:
    rng = np.random.default_rng(seed)
    logits = rng.normal(0, 2, (40, 4)).astype(np.float32)
    backbone = rng.normal(1, 1, (40, 5)).astype(np.float32)
    expected = remoteness_by_hand(logits.tolist(), backbone.tolist(), 4)
    np.testing.assert_allclose(relative_distance(logits, backbone, 4), expected, rtol=1e-3)


def test_copies_of_one_image_make_no_other_remote() -> None:
    few = with_few_new()
    few.backbone[:20] = few.backbone[0]
    remote = relative_distance(few.logits, few.backbone, 3)
    assert remote[:20].max() < 0.01
    few.backbone[19, 1] += 0.05
    assert relative_distance(few.logits, few.backbone, 3)[19] < 2


def test_images_of_a_new_class_are_remote_and_most_known_ones_are_not() -> None:
    few = with_few_new()
    remote = relative_distance(few.logits, few.backbone, 3)
    assert remote[60:].min() > 10
    assert (remote[:60] <= 1.1).mean() > 0.8
    assert remote.dtype == np.float32


def test_a_class_without_images_and_one_with_one_are_no_trouble() -> None:
    logits = (5 * np.eye(3)[[0, 0, 0, 0, 1]]).astype(np.float32)
    remote = relative_distance(logits, groups()[:5], 3)
    assert np.isfinite(remote).all()
    assert remote[4] <= 2  # its own centre, to the last digit


def test_equal_images_are_not_remote() -> None:
    logits = (5 * np.eye(2)[np.arange(10) % 2]).astype(np.float32)
    assert relative_distance(logits, np.ones((10, 4), np.float32), 2).max() <= 2


def test_a_closed_round_chooses_among_known_classes_alone() -> None:
    logits = np.random.default_rng(0).normal(0, 2, (30, 3)).astype(np.float32)
    found = closed_round(logits, None, np.array([4, 7]))
    predicted = logits.argmax(axis=1)
    assert (found.k_star, found.curve, found.votes, found.k_path) == (0, None, {}, ())
    assert len(found.candidates.implicit) == len(found.implicit_labels) == 0
    assert (found.findings, found.verdict) == ((), None)
    assert found.suspects.tolist() == [4, 7]
    np.testing.assert_array_equal(found.candidates.known_labels, predicted[found.candidates.known])
    halves = [-(-(predicted == label).sum() // 2) for label in range(3)]
    assert np.bincount(found.candidates.known_labels).tolist() == halves


def test_the_verdict_of_the_round_before_stays_true() -> None:
    logits = np.random.default_rng(0).normal(0, 2, (30, 3)).astype(np.float32)
    verdict = Finding(Status.NOTHING_NEW, "as seen before", "look again")
    before = replace(closed_round(logits, None, empty_ids()), verdict=verdict)
    assert closed_round(logits, before, empty_ids()).verdict == verdict


def test_few_new_images_are_the_suspects_that_are_unlike_known_classes() -> None:
    few = with_few_new()
    found = few.judge(np.array([3, 25, *range(60, 68)]))  # the game suspects two known ones
    assert found.suspects.tolist() == list(range(60, 68))
    share = neighbour_disagreement(few.labels, few.backbone)
    assert str(found.verdict) == (
        f"few new images: {share:.1%} of the target images disagree with their neighbours, and "
        "8 images are unlike every known class; inspect the discovered classes; use --novel no to "
        "give every image a known class, or --novel yes to find more"
    )


def test_the_closed_round_itself_stays_as_it_was() -> None:
    few = with_few_new()
    before = closed_round(few.logits, None, np.arange(60, 70))
    found = judge_closed_round(before, few.logits, few.backbone, neighbour_graph(few.backbone), 3)
    assert found.candidates is before.candidates
    assert (found.k_star, before.verdict, len(before.suspects)) == (0, None, 10)


def test_nothing_is_new_where_neighbours_agree() -> None:
    found = with_few_new(scattered=False).judge(np.arange(60, 70))
    assert str(found.verdict) == (
        "nothing new found: 0.0% of the target images disagree with their neighbours; a small new "
        "class may be missed; use --novel yes to search for new classes"
    )
    assert found.suspects.tolist() == []


def test_nothing_is_new_where_no_suspect_is_unlike_the_known_classes() -> None:
    few = with_few_new()
    for suspects in (empty_ids(), np.array([3, 25])):
        found = few.judge(suspects)
        assert found.verdict is not None
        assert found.verdict.status is Status.NOTHING_NEW
        assert found.suspects.tolist() == []


@pytest.mark.parametrize(
    ("share", "status"),
    [
        (0.0, Status.NOTHING_NEW),
        (MAX_DISAGREEMENT, Status.NOTHING_NEW),
        (MAX_DISAGREEMENT + 1e-6, Status.FEW_NEW),
    ],
)
def test_the_threshold_is_of_the_share_that_disagrees(
    share: float, status: Status, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(novelty, "neighbour_disagreement", lambda labels, backbone: share)
    found = with_few_new().judge(np.arange(60, 70))
    assert found.verdict is not None
    assert found.verdict.status is status
    assert found.verdict.found.startswith(f"{share:.1%} of the target images disagree")


def test_an_odd_picture_alone_is_no_suspect() -> None:
    few = with_few_new()
    few.backbone[7] = few.backbone[:20].mean(axis=0) + np.array([0, 0.13, 0.04, 0])
    assert relative_distance(few.logits, few.backbone, 3)[7] > 1.1
    assert few.judge(np.array([7, *range(60, 70)])).suspects.tolist() == list(range(60, 70))


def test_suspects_are_t_im_and_all_others_may_be_t_kn() -> None:
    logits = np.random.default_rng(0).normal(0, 2, (30, 3)).astype(np.float32)
    predicted, suspects = logits.argmax(axis=1), np.array([2, 3, 11])
    alone = closed_round(logits, None, empty_ids()).candidates
    candidates = suspect_candidates(closed_round(logits, None, suspects), logits)
    assert set(suspects.tolist()) & set(alone.known.tolist())
    assert candidates.implicit.tolist() == [2, 3, 11]
    assert candidates.known.tolist() == [row for row in alone.known.tolist() if row not in suspects]
    assert candidates.known_labels.tolist() == predicted[candidates.known].tolist()
