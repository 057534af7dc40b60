from dataclasses import replace

import numpy as np
import pytest

from scda.adapt.discovery.closeness import Closeness, closeness, is_closer, is_far_off


def domains(shift: float) -> tuple["np.ndarray", "np.ndarray", "np.ndarray"]:
    """Four classes in sixteen dimensions; the target's are moved, each its own way."""
    rng = np.random.default_rng(0)
    centres = 4 * rng.normal(size=(4, 16))
    moved = centres + shift * rng.normal(size=centres.shape)
    labels = np.repeat(np.arange(4), 30)
    source = centres[labels] + rng.normal(size=(120, 16))
    target = moved[labels] + rng.normal(size=(120, 16))
    return source.astype(np.float32), labels, target.astype(np.float32)


def test_domains_that_lie_closer_have_larger_views() -> None:
    near, far = closeness(*domains(0.5)), closeness(*domains(8.0))
    assert is_closer(near, far)
    assert not is_closer(far, near)
    assert near.agreement > 0.95
    assert near.cosine > 0.8


def test_a_domain_is_not_closer_than_itself() -> None:
    found = closeness(*domains(2.0))
    assert found == closeness(*domains(2.0))
    assert not is_closer(found, found)


@pytest.mark.parametrize("view", ["agreement", "cosine"])
def test_every_view_has_to_agree(view: str) -> None:
    before = Closeness(0.5, 0.5)
    after = Closeness(0.6, 0.6)
    assert is_closer(after, before)
    assert not is_closer(replace(after, **{view: 0.4}), before)


def test_a_class_without_images_is_left_out() -> None:
    source, labels, target = domains(2.0)
    assert closeness(source, np.where(labels == 3, 4, labels), target) == closeness(
        source, labels, target
    )


@pytest.mark.parametrize(("cosine", "expected"), [(0.3, True), (0.45, False), (0.6, False)])
def test_only_much_lower_cosines_are_far_off(cosine: float, expected: bool) -> None:
    before = Closeness(0.5, 0.5)
    assert is_far_off(Closeness(0.9, cosine), before) is expected
