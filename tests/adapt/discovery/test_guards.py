import numpy as np
import pytest

from scda.adapt.discovery.discover import Candidates, Discovery, nobody
from scda.adapt.discovery.guards import nobody_called, one_sided


def found(k_star: int, *, verdict: str = "") -> Discovery:
    candidates = Candidates(nobody(), nobody(), nobody())
    return Discovery(k_star, candidates, nobody(), None, [], verdict=verdict)


@pytest.mark.parametrize(
    ("before", "after", "what_to_change"),
    [
        (0.0, 0.009, "fewer pretrain_steps"),
        (1.0, 0.991, "more pretrain_steps"),
        (0.0, 0.02, None),  # it found its way back
        (0.02, 0.0, None),  # not yet a whole round
        (1.0, 0.98, None),
        (0.5, 0.5, None),
        (0.0, 1.0, None),
    ],
)
def test_a_game_that_one_side_wins_for_a_whole_round_is_told(
    before: float, after: float, what_to_change: str | None
) -> None:
    lines = one_sided(before, after, found(3))
    assert len(lines) == (what_to_change is not None)
    for line in lines:
        assert line.startswith("game collapsed: ")
        assert what_to_change is not None
        assert what_to_change in line


@pytest.mark.parametrize("discovery", [found(0), found(2, verdict="few new images: as seen")])
def test_few_called_new_are_no_fault_where_few_are_looked_for(discovery: Discovery) -> None:
    assert one_sided(0.0, 0.0, discovery) == []
    assert len(one_sided(1.0, 1.0, discovery)) == 1


def test_classes_that_no_image_is_given_are_named() -> None:
    names = ["cat", "dog", "discovered-000"]
    assert nobody_called(np.array([0, 1, 2, 1]), names) == []
    (line,) = nobody_called(np.array([1, 1]), names)
    assert line.startswith("empty class: no target image is called cat, discovered-000; ")


def test_many_empty_classes_are_counted() -> None:
    (line,) = nobody_called(np.array([0]), [f"c{number}" for number in range(9)])
    assert "called c1, c2, c3, c4, c5 and 3 more;" in line
