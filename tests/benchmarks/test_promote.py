from pathlib import Path

import pytest

from benchmarks.promote import judged, name_by_majority
from tests.bundles import make_bundle, picture


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    return make_bundle(tmp_path / "bundle")


def labelled(tmp_path: Path, **colours: list[str]) -> Path:
    """Folders by true class, with pictures of these colours in them."""
    for folder, of_folder in colours.items():
        (tmp_path / "labelled" / folder).mkdir(parents=True)
        for number, colour in enumerate(of_folder):
            path = tmp_path / "labelled" / folder / f"{number}.jpg"
            path.write_bytes(picture(colour))
    return tmp_path / "labelled"


def test_discovered_classes_are_named_like_most_of_their_images(
    bundle: Path, tmp_path: Path
) -> None:
    truth = labelled(tmp_path, blue=["blue"], lemon=["yellow", "yellow"], sea=["cyan", "yellow"])
    names = name_by_majority(judged(bundle, truth))
    assert names.labels == {"discovered-000": "lemon", "discovered-001": "sea"}
    after = judged(bundle, truth)
    assert after.named == {"blue", "green", "red", "lemon", "sea"}
    assert after.acc_named(after.named) == 80.0
    assert after.acc_named({"sea"}) == 50.0


def test_two_of_one_true_class_are_merged(bundle: Path, tmp_path: Path) -> None:
    truth = labelled(tmp_path, lemon=["yellow", "cyan"])
    names = name_by_majority(judged(bundle, truth))
    assert names.merges == {"discovered-001": "discovered-000"}
    assert judged(bundle, truth).acc_named({"lemon"}) == 100.0


def test_one_of_a_known_class_is_merged_into_it(bundle: Path, tmp_path: Path) -> None:
    truth = labelled(tmp_path, red=["cyan"], lemon=["yellow"])
    assert name_by_majority(judged(bundle, truth)).merges == {"discovered-001": "known-002"}


def test_a_class_without_images_stays_as_it_is(bundle: Path, tmp_path: Path) -> None:
    truth = labelled(tmp_path, lemon=["yellow"])
    assert name_by_majority(judged(bundle, truth)).labels == {"discovered-000": "lemon"}
