import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks import class_trust
from benchmarks.class_trust import Limits, best_limits
from benchmarks.suites.classes import Judged, judged_classes
from scda.adapt.discovery.neighbours import nearest_others

GOOD = Judged(size=9, stability=0.95, leak=0.0, purity=0.9, known=False)
FALSE = Judged(size=9, stability=0.9, leak=0.4, purity=0.9, known=True)
MIXED = Judged(size=9, stability=0.5, leak=0.0, purity=0.4, known=False)


def test_a_class_is_bad_if_it_is_mixed_or_of_a_known_class() -> None:
    assert [one.bad for one in (GOOD, FALSE, MIXED)] == [False, True, True]


def test_every_class_with_images_is_judged_by_its_largest_true_class() -> None:
    predicted = np.repeat([0, 1, 2, 4], [4, 4, 4, 3])  # output 3 has no image
    truth = np.array([0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 1, 0, 0, 3])
    points = np.eye(5, 8, dtype=np.float32)[predicted]
    found, false = judged_classes(predicted, nearest_others(points, 3), truth, num_known=2)
    expected = {"size": 4, "stability": 1.0, "leak": 0.0, "purity": 0.75, "known": False}
    assert found == expected
    assert (false["size"], false["purity"], false["known"]) == (3, 0.6667, True)


def test_limits_tell_the_bad_classes_of_all_families() -> None:
    limits = best_limits({"a": [GOOD, FALSE], "b": [GOOD, MIXED]})
    assert limits.doubtful([GOOD, FALSE, MIXED]).tolist() == [False, True, True]


def test_a_family_is_judged_by_the_limits_of_the_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lower = Judged(size=9, stability=0.7, leak=0.0, purity=0.9, known=False)
    families = {"a": [GOOD, MIXED], "b": [GOOD, lower, MIXED], "c": [GOOD, GOOD]}
    with (tmp_path / "out.jsonl").open("w") as file:
        for name, classes in families.items():
            fields = {"family": name, "classes": [vars(one) for one in classes]}
            file.write(json.dumps(fields) + "\n")
    assert class_trust.main([str(tmp_path / "out.jsonl")]) == 0
    shown = capsys.readouterr().out
    by_others = best_limits({name: families[name] for name in "ac"})
    assert f"| b | 3 | 1 | 1.00 / 0.50 | {by_others.doubtful(families['b']).sum()} |" in shown
    assert "| c | 2 | 0 | not defined / not defined | 0 |" in shown
    assert "Limits that all families choose: stability 0." in shown


@pytest.mark.parametrize("text", ["", '{"family": "a", "classes": []}\n'])
def test_results_without_discovered_classes_are_one_line_and_exit_code_2(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "out.jsonl").write_text(text)
    assert class_trust.main([str(tmp_path / "out.jsonl")]) == 2
    assert "found discovered classes of 0 families" in capsys.readouterr().err


def test_a_class_is_doubtful_for_either_reason() -> None:
    limits = Limits(stability=0.7, leak=0.1)
    assert limits.doubtful([GOOD, FALSE, MIXED]).tolist() == [False, True, True]
