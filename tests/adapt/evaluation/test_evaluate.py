import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from scda.adapt.evaluation.evaluate import evaluate, score
from scda.models.errors import DataError
from scda.models.images import read_file
from scda.models.names import Names
from scda.models.predictor import Predictor, load_predictor
from tests.bundles import make_bundle, picture


@pytest.fixture(scope="module")
def predictor(tmp_path_factory: pytest.TempPathFactory) -> Predictor:
    """Blue, green and red are known; yellow and cyan discovered."""
    return load_predictor(make_bundle(tmp_path_factory.mktemp("made") / "bundle"))


@pytest.fixture
def labelled(tmp_path: Path) -> Path:
    """Three blue, one of them under the wrong name; two yellow, one cyan; red has no folder."""
    root = tmp_path / "labelled"
    pictures = {"blue": ["blue", "blue"], "green": ["blue"], "lemon": ["yellow", "yellow"]}
    for folder, colours in {**pictures, "sea": ["cyan"], "nothing": []}.items():
        (root / folder).mkdir(parents=True)
        for number, colour in enumerate(colours):
            (root / folder / f"{number}.jpg").write_bytes(picture(colour))
    return root


def test_the_metrics_of_a_case_worked_by_hand(predictor: Predictor, labelled: Path) -> None:
    done: list[tuple[int, int]] = []
    scored = score(predictor, labelled, on_progress=lambda *parts: done.append(parts))
    fields = evaluate(scored, predictor)
    # blue 2 of 2, green 0 of 1, red has no image; all three implicit images are rejected.
    assert fields["os_star"] == 50.0
    assert fields["unk_pooled"] == fields["unk_macro"] == 100.0
    assert fields["os"] == 62.5
    assert fields["hos"] == 66.67
    assert fields["auroc"] == 100.0
    assert fields["acc_novel"] == fields["nmi_implicit"] == 100.0
    assert fields["acc_joint"] == 83.33
    assert (fields["k_star"], fields["k_true"], fields["k_abs"]) == (2, 2, 0)
    assert fields["correspondence_1"] == 2
    # Two of three predicted as known are right, and all three that are predicted as discovered.
    known = scored.predicted < 3
    sure_of_known, sure_of_new = (100 * scored.confidence[of].mean() for of in (known, ~known))
    assert fields["ece_known"] == pytest.approx(sure_of_known - 200 / 3, abs=0.01)
    assert fields["ece_discovered"] == pytest.approx(100 - sure_of_new, abs=0.01)
    # All six lie in the highest bin.
    assert fields["ece"] == pytest.approx((sure_of_known + sure_of_new) / 2 - 500 / 6, abs=0.01)
    assert [(one["kind"], one["images"]) for one in fields["reliability"]] == [
        ("known", 3),
        ("discovered", 3),
    ]
    assert (fields["images"], fields["rejected"]) == (6, 0)
    assert fields["bundle_id"] == predictor.manifest.id
    assert done[-1] == (6, 6)


def test_it_says_what_the_predictor_says(predictor: Predictor, labelled: Path) -> None:
    scored = score(predictor, labelled, on_progress=lambda done, total: None)
    paths = sorted(labelled.glob("*/*.jpg"))
    answers = predictor.predict([predictor.prepare(read_file(path)) for path in paths])
    ids = predictor.manifest.class_ids
    assert [ids[label] for label in scored.predicted] == [answer.class_id for answer in answers]


def test_bad_files_are_counted_and_left_out(predictor: Predictor, labelled: Path) -> None:
    (labelled / "blue" / "bad.jpg").write_bytes(b"no image")
    scored = score(predictor, labelled, on_progress=lambda done, total: None)
    assert (len(scored.true), scored.rejected) == (6, 1)


def test_without_any_usable_image_it_refuses(predictor: Predictor, labelled: Path) -> None:
    for folder in labelled.iterdir():
        shutil.rmtree(folder)
        folder.mkdir()
    with pytest.raises(DataError, match="no usable image"):
        score(predictor, labelled, on_progress=lambda done, total: None)


@pytest.fixture
def renamed(predictor: Predictor) -> Iterator[Predictor]:
    yield predictor
    predictor.rename(Names())


def measure(predictor: Predictor, labelled: Path) -> dict[str, Any]:
    return evaluate(score(predictor, labelled, on_progress=lambda done, total: None), predictor)


def test_a_merge_counts_as_one_class(renamed: Predictor, labelled: Path) -> None:
    renamed.rename(Names(version=1, merges={"discovered-001": "discovered-000"}))
    fields = measure(renamed, labelled)
    assert (fields["k_star"], fields["k_true"], fields["names_version"]) == (1, 2, 1)
    assert fields["acc_novel"] == 66.67  # two yellow and one cyan in one cluster
    assert fields["os_star"] == 50.0


def test_what_is_merged_into_a_known_class_is_no_longer_new(
    renamed: Predictor, labelled: Path
) -> None:
    renamed.rename(Names(version=1, merges={"discovered-001": "known-002"}))
    fields = measure(renamed, labelled)
    assert fields["unk_pooled"] == 66.67  # cyan is called red
    assert fields["k_star"] == 1


def test_a_dropped_class_still_counts_as_called_new(renamed: Predictor, labelled: Path) -> None:
    renamed.rename(Names(version=1, drops=frozenset({"discovered-000"})))
    fields = measure(renamed, labelled)
    assert (fields["unk_pooled"], fields["k_star"]) == (100.0, 1)
    assert (fields["acc_novel"], fields["correspondence_1"]) == (33.33, 1)  # cyan alone is found
    assert sum(one["images"] for one in fields["reliability"]) == 4  # without the two unknown


def test_a_known_class_may_be_merged_into_another(renamed: Predictor, labelled: Path) -> None:
    renamed.rename(Names(version=1, merges={"known-001": "known-000"}))
    fields = measure(renamed, labelled)
    assert fields["os_star"] == 100.0  # the blue image in green/ is right by now
    assert fields["unk_pooled"] == 100.0


def test_folders_are_known_by_the_given_name_too(renamed: Predictor, labelled: Path) -> None:
    (labelled / "blue").rename(labelled / "ocean")
    assert measure(renamed, labelled)["os_star"] == 0.0
    renamed.rename(Names(version=1, labels={"known-000": "ocean"}))
    assert measure(renamed, labelled)["os_star"] == 50.0


def test_named_classes_are_measured_by_their_name(renamed: Predictor, labelled: Path) -> None:
    assert measure(renamed, labelled)["acc_named"] == 66.67  # blue 2 of 2, green 0 of 1
    renamed.rename(Names(version=1, labels={"discovered-000": "lemon", "discovered-001": "x"}))
    assert measure(renamed, labelled)["acc_named"] == 80.0
    renamed.rename(Names(version=2, labels={"discovered-001": "lemon"}))
    assert measure(renamed, labelled)["acc_named"] == 40.0  # yellow is called by another name


def test_what_a_class_is_called_now_goes_before_what_it_was(
    renamed: Predictor, labelled: Path
) -> None:
    """Green is called blue by now, and blue ocean: folders mean what is called so."""
    renamed.rename(Names(version=1, labels={"known-000": "ocean", "known-001": "blue"}))
    (labelled / "ocean").mkdir()
    (labelled / "ocean" / "0.jpg").write_bytes(picture("blue"))
    fields = measure(renamed, labelled)
    assert fields["os_star"] == 50.0  # ocean right; the folder blue holds blue images, called ocean
    renamed.rename(Names(version=2, labels={"known-000": "ocean", "discovered-000": "blue"}))
    assert measure(renamed, labelled)["k_true"] == 3  # blue, lemon, sea
