import math

import numpy as np
import pytest

from scda.adapt.discovery.selection import entropy, lower_half, select
from tests.adapt.discovery.blobs import logits_of


def select_by_hand(logits: list[list[float]], known: int, share: str) -> tuple[set[int], set[int]]:
    groups: dict[int, list[tuple[float, int]]] = {}
    for i, row in enumerate(logits):
        exps = [math.exp(value) for value in row]
        probabilities = [value / sum(exps) for value in exps]
        spread = -sum(p * math.log(p) for p in probabilities)
        groups.setdefault(row.index(max(row)), []).append((spread, i))
    chosen: tuple[set[int], set[int]] = (set(), set())
    for label, members in groups.items():
        half = len(members) // 2 + len(members) % 2
        if label >= known and share == "all":
            half = len(members)
        chosen[label >= known].update(i for _, i in sorted(members)[:half])
    return chosen


@pytest.mark.parametrize("share", ["half", "all"])
@pytest.mark.parametrize("seed", range(5))
def test_select_takes_the_lower_entropy_half_of_every_class(seed: int, share: str) -> None:
    rng = np.random.default_rng(seed)
    logits = rng.normal(0, 2, (int(rng.integers(3, 40)), 6)).astype(np.float32)
    known, implicit = select_by_hand(logits.tolist(), 4, share)
    candidates = select(logits, num_known=4, implicit_share=share)
    assert candidates.known.tolist() == sorted(known)
    assert candidates.implicit.tolist() == sorted(implicit)
    assert candidates.known_labels.tolist() == logits.argmax(axis=1)[candidates.known].tolist()


def test_select_takes_half_rounded_up_and_at_least_one() -> None:
    labels = [0] + [1] * 5 + [2] * 4 + [3] * 3
    candidates = select(logits_of(labels, 4), num_known=2, implicit_share="half")
    assert np.bincount(candidates.known_labels).tolist() == [1, 3]
    assert len(candidates.implicit) == 2 + 2  # of each discovered class


def test_all_takes_every_image_predicted_as_new_and_half_of_the_known() -> None:
    labels = [0] * 4 + [2] * 3 + [3] * 2
    candidates = select(logits_of(labels, 4), num_known=2, implicit_share="all")
    assert len(candidates.known) == 2
    assert candidates.implicit.tolist() == [4, 5, 6, 7, 8]


def test_select_of_nothing_new_has_whole_number_rows() -> None:
    for share in ("half", "all"):
        candidates = select(logits_of([0, 1], 3), num_known=2, implicit_share=share)
        assert candidates.implicit.shape == (0,)
        assert candidates.implicit.dtype == np.int64


@pytest.mark.parametrize("seed", range(3))
def test_the_lower_half_of_some_rows_is_of_the_least_entropy(seed: int) -> None:
    rng = np.random.default_rng(seed)
    entropies = rng.uniform(0, 2, 30).astype(np.float32)
    members = rng.permutation(30)[: int(rng.integers(1, 20))]
    half = lower_half(members, entropies).tolist()
    by_entropy = sorted(members.tolist(), key=lambda row: entropies[row])
    assert half == by_entropy[: math.ceil(len(members) / 2)]


def test_the_lower_half_is_one_of_one_and_none_of_none() -> None:
    entropies = np.array([1, 2, 3, 4], np.float32)
    assert lower_half(np.array([3]), entropies).tolist() == [3]
    assert lower_half(np.array([3, 1, 2]), entropies).tolist() == [1, 2]
    assert lower_half(np.empty(0, np.int64), entropies).tolist() == []


def test_entropy_is_equation_7() -> None:
    logits = np.random.default_rng(0).normal(0, 2, (5, 4)).astype(np.float32)
    for row, actual in zip(logits.tolist(), entropy(logits).tolist(), strict=True):
        total = sum(map(math.exp, row))
        shares = [math.exp(value) / total for value in row]
        assert actual == pytest.approx(-sum(p * math.log(p) for p in shares), rel=1e-5)


def test_entropy_is_finite_for_extreme_logits() -> None:
    logits = np.array([[1e30, 0, 0], [0, 0, 0], [-1e30, 1e30, 1e30]], np.float32)
    assert entropy(logits).tolist() == pytest.approx([0, math.log(3), math.log(2)])
