from collections.abc import Iterator
from itertools import chain, islice

import pytest
import torch
from torch import Generator, Tensor

from scda.adapt.training.sampling import balanced, labelled, shuffled


def generator(seed: int = 0) -> Generator:
    return Generator().manual_seed(seed)


def first(batches: int, of: Iterator[Tensor]) -> list[list[int]]:
    return [batch.tolist() for batch in islice(of, batches)]


def test_a_shuffled_pass_sees_every_image_once() -> None:
    stream = shuffled(12, 4, generator())
    passes = [sorted(chain(*first(3, stream))) for _ in range(3)]
    assert passes == [list(range(12))] * 3


def test_a_batch_that_is_not_full_is_dropped() -> None:
    batches = first(20, shuffled(10, 4, generator()))
    assert {len(batch) for batch in batches} == {4}
    for one, two in zip(batches[::2], batches[1::2], strict=True):  # two batches to a pass
        assert len(set(one + two)) == 8
    assert set(chain(*batches)) == set(range(10))  # another two are left out every time


def test_fewer_images_than_a_batch_come_all_together() -> None:
    assert [sorted(batch) for batch in first(3, shuffled(3, 32, generator()))] == [[0, 1, 2]] * 3


def test_a_single_image_comes_twice_since_batch_norm_needs_two() -> None:
    assert first(2, shuffled(1, 32, generator())) == [[0, 0], [0, 0]]


def test_passes_differ_and_a_seed_repeats_them() -> None:
    one = first(6, shuffled(12, 4, generator()))
    assert one[:3] != one[3:]
    assert one == first(6, shuffled(12, 4, generator()))
    assert one != first(6, shuffled(12, 4, generator(1)))


def test_balanced_batches_hold_every_class_equally_often() -> None:
    labels = torch.tensor([0] * 90 + [1] * 9 + [3])  # class 2 has no image
    drawn = torch.cat(list(islice(balanced(labels, 50, generator()), 120)))
    counts = labels[drawn].bincount().tolist()
    assert counts[2] == 0
    for count in (counts[0], counts[1], counts[3]):
        assert count == pytest.approx(6000 / 3, rel=0.1)  # 3 standard deviations are 5.5%


def test_balanced_images_of_a_class_are_equally_likely() -> None:
    labels = torch.tensor([0, 0, 0, 0, 1])
    drawn = torch.cat(list(islice(balanced(labels, 50, generator()), 120)))
    for count in drawn.bincount()[:4].tolist():
        assert count == pytest.approx(6000 / 8, rel=0.15)


def test_balanced_batches_are_full_even_of_a_single_image() -> None:
    assert first(1, balanced(torch.tensor([4]), 3, generator())) == [[0, 0, 0]]


@pytest.mark.parametrize("sampling", ["balanced", "shuffled"])
def test_labelled_samples_as_asked(sampling: str) -> None:
    labels: Tensor = torch.arange(8) % 2
    stream = (
        balanced(labels, 4, generator()) if sampling == "balanced" else shuffled(8, 4, generator())
    )
    assert first(5, labelled(labels, 4, generator(), sampling=sampling)) == first(5, stream)
