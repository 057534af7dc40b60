import math

import numpy as np
import pytest

from benchmarks.ksweep import Sweep, curve_difference, mixture
from benchmarks.speed.answers import Answer, exit_code
from scda.adapt.discovery.counting.estimate import Curve


def curve(k: list[int], sse: list[float], accuracy: list[float]) -> Curve:
    return Curve(k, sse, accuracy, k_accuracy=k[0], k_accuracy_spread=[], k_elbow=k[-1])


def test_curves_differ_by_the_most_at_any_k_that_both_tried() -> None:
    plain = curve([2, 3, 4, 5], [100.0, 50.0, 40.0, 30.0], [0.5, 0.8, 0.9, 0.7])
    assert curve_difference(curve([2, 4], [100.0, 40.0], [0.5, 0.9]), plain) == 0
    assert curve_difference(curve([2, 4], [101.0, 40.0], [0.5, 0.9]), plain) == pytest.approx(0.01)
    assert curve_difference(curve([3, 5], [50.0, 30.0], [0.4, 0.7]), plain) == pytest.approx(0.5)


def test_k_star_is_as_discovery_counts_it() -> None:
    assert Sweep(curve([5, 8], [2.0, 1.0], [1.0, 0.5]), seconds=1.0).k_star(3) == math.ceil(6.5) - 3


def test_the_mixture_has_its_known_classes_first_and_apart() -> None:
    data = mixture(3, 2, 100)
    assert data.points.shape == (100, 64)
    assert np.bincount(data.known_labels).tolist() == [20, 20, 20]
    centres = np.stack([data.points[20 * i : 20 * i + 20].mean(axis=0) for i in range(5)])
    gaps = np.linalg.norm(centres[:, None] - centres[None], axis=2)
    assert gaps[~np.eye(5, dtype=bool)].min() > 8


@pytest.mark.parametrize(
    ("ratio", "at_least", "passes"), [(2, True, True), (0.5, True, False), (0.5, False, True)]
)
def test_an_answer_keeps_to_its_bar(
    ratio: float, at_least: bool, passes: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    answer = Answer("speed", ratio, 1, at_least=at_least)
    assert answer.passes is passes
    assert exit_code([Answer("fine", 1, 1), answer]) == int(not passes)
    verdict = "PASS" if passes else "FAIL"
    assert f"{verdict} name=speed ratio={ratio} bar=1" in capsys.readouterr().out
