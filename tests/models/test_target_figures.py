from dataclasses import asdict, replace
from typing import Any

import numpy as np
import pytest

from scda.models.target_figures import Distribution, HeldOut, TargetFigures

HELD_OUT = HeldOut(images=3, outliers=1, distance=Distribution(edges=(0.1, 0.2), counts=(1, 0, 2)))
FIGURES = TargetFigures(images=9, outlier_share=0.1, mean_confidence=0.9, held_out=HELD_OUT)


def test_what_is_held_out_is_read_as_it_was_written() -> None:
    fields: dict[str, Any] = asdict(FIGURES)
    assert TargetFigures.from_json(as_json(fields)) == FIGURES
    assert TargetFigures.from_json({**as_json(fields), "held_out": None}) == replace(
        FIGURES, held_out=None
    )


def as_json(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: as_json(one) for name, one in value.items()}
    return list(value) if isinstance(value, tuple) else value


@pytest.mark.parametrize(
    "changes",
    [
        {"images": 0},
        {"outliers": 4},
        {"distance": {"edges": [0.2, 0.1], "counts": [1, 1, 1]}},
        {"distance": {"edges": [0.1], "counts": [1, 1, 1]}},
        {"distance": {"edges": [], "counts": [0]}},
        {"distance": {"edges": ["x"], "counts": [1, 1]}},
        {"distance": {"edges": 7, "counts": [1]}},
        {"x": 1},
    ],
)
def test_strange_figures_are_refused(changes: dict[str, Any]) -> None:
    fields = as_json(asdict(HELD_OUT))
    with pytest.raises((TypeError, ValueError)):
        HeldOut.from_json({**fields, **changes})


def test_a_distribution_has_parts_of_equal_size_and_smaller_ends() -> None:
    values = np.arange(1000) / 1000
    found = Distribution.of(values)
    assert found.counts == (10, 15, 25, *[50] * 18, 25, 15, 10)
    assert found.count([0.0, 0.999, 5.0]).tolist() == [1, *[0] * 22, 2]


def test_a_distribution_of_one_value_has_a_part_for_it() -> None:
    found = Distribution.of(np.ones(30))
    assert (found.edges, found.counts) == ((1.0,), (0, 30))
    assert found.count([0.5, 1.0]).tolist() == [1, 1]
