from pathlib import Path

import numpy as np
import pytest

from scda.adapt.evaluation.confusions import Truth, make_truth
from scda.adapt.evaluation.evaluate import Scored, evaluate, score
from scda.models.names import Names
from scda.models.predictor import Predictor, load_predictor
from tests.bundles import make_bundle, picture


@pytest.fixture
def predictor(tmp_path: Path) -> Predictor:
    return load_predictor(make_bundle(tmp_path / "bundle"), provider="cpu", threads=1)


def labelled(folder: Path, **images: list[str]) -> Path:
    """Class folders, each with pictures of the named colours."""
    for name, colours in images.items():
        (folder / name).mkdir(parents=True)
        for number, colour in enumerate(colours):
            (folder / name / f"{number}.jpg").write_bytes(picture(colour))
    return folder


def truth_of(predictor: Predictor, folder: Path) -> Truth:
    scored = score(predictor, folder, on_progress=lambda done, total: None)
    return make_truth(scored, evaluate(scored, predictor), predictor)


def test_discovered_classes_stand_in_the_column_of_their_match(
    predictor: Predictor, tmp_path: Path
) -> None:
    # Classes in the order of their names: the lemon is discovered-000, the sea discovered-001.
    folder = labelled(
        tmp_path / "labelled",
        blue=["blue", "blue", "cyan"],
        a_sea=["cyan", "cyan", "yellow"],
        b_lemon=["yellow", "yellow"],
    )
    found = truth_of(predictor, folder)
    assert found.images == 8
    assert [one.label for one in found.columns] == [
        "blue",
        "green",
        "red",
        "discovered-001",
        "discovered-000",
    ]
    by_name = {row.label: row for row in found.rows}
    assert by_name["a_sea"].counts == [0, 0, 0, 2, 1]
    assert by_name["a_sea"].partner == 3
    assert by_name["b_lemon"].counts == [0, 0, 0, 0, 2]
    assert by_name["b_lemon"].partner == 4
    assert by_name["blue"].counts == [2, 0, 0, 1, 0]
    assert by_name["blue"].partner == 0
    assert (by_name["red"].total, by_name["red"].known) == (0, True)


def test_a_class_that_nothing_was_found_for_has_no_partner(
    predictor: Predictor, tmp_path: Path
) -> None:
    folder = labelled(tmp_path / "labelled", blue=["blue"], mist=["blue"])
    found = truth_of(predictor, folder)
    (mist,) = [row for row in found.rows if row.label == "mist"]
    assert mist.partner is None
    assert mist.counts[0] == 1


def test_unknown_stands_for_no_class(predictor: Predictor, tmp_path: Path) -> None:
    folder = labelled(tmp_path / "labelled", blue=["blue"], lemon=["yellow"])
    predictor.rename(Names(version=1, drops=frozenset({"discovered-000"})))
    found = truth_of(predictor, folder)
    assert [one.kind for one in found.columns[-2:]] == ["discovered", "unknown"]
    (lemon,) = [row for row in found.rows if row.label == "lemon"]
    assert lemon.counts[-1] == 1
    assert lemon.partner is None


def test_metrics_and_counts_are_those_of_evaluate(predictor: Predictor, tmp_path: Path) -> None:
    folder = labelled(tmp_path / "labelled", blue=["blue"], lemon=["yellow"])
    found = truth_of(predictor, folder)
    assert {name: value for name, value, _ in found.metrics}["hos"] == 100
    assert found.correspondence == [(1, 1), (3, 1), (5, 1)]


def test_a_bundle_without_discovered_classes_has_a_table_too(tmp_path: Path) -> None:
    bundle = make_bundle(tmp_path / "bundle", num_discovered=0)
    predictor = load_predictor(bundle, provider="cpu", threads=1)
    one = np.array([0, 3])
    scored = Scored(
        one,
        np.array([0, 1]),
        np.ones(2, np.float32),
        np.zeros(2, np.float32),
        np.eye(2, dtype=np.float32),
        ["new"],
        0,
    )
    found = make_truth(scored, {}, predictor)
    assert [row.counts for row in found.rows if row.label == "new"] == [[0, 1, 0]]
