import random
from pathlib import Path

import numpy as np
import pytest
import torch

from scda.adapt.runtime.rng import capture, restore, seed_all

Drawn = tuple[float, float, float, float]


def draw() -> Drawn:
    return random.random(), random.gauss(0, 1), float(np.random.normal()), torch.rand(1).item()


def test_a_seed_is_for_all_of_them() -> None:
    seed_all(3)
    first = draw()
    seed_all(3)
    assert draw() == first
    seed_all(4)
    assert not set(draw()) & set(first)


@pytest.mark.parametrize("drawn_before", [0, 1])  # normal numbers come in pairs: one waits
def test_all_go_on_where_they_were_after_a_file(tmp_path: Path, drawn_before: int) -> None:
    seed_all(0)
    for _ in range(drawn_before):
        draw()
    torch.save(capture(), tmp_path / "state.pt")
    expected = draw(), draw()
    seed_all(9)
    restore(torch.load(tmp_path / "state.pt", weights_only=True))
    assert (draw(), draw()) == expected
