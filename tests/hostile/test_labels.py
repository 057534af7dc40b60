"""Labels that clash with the ids of classes, with each other, or that nobody can see."""

import json
from pathlib import Path

import pytest

from scda.adapt.data.dataset import _warn_of_names
from scda.adapt.evaluation.evaluate import Scored, evaluate, score
from scda.adapt.report.groups import make_groups
from scda.adapt.runtime.progress import Reporter
from scda.models.bundle import NAMES, ClassInfo, read_manifest
from scda.models.errors import GateError, UsageError
from scda.models.names import Names, as_seen, read_names
from scda.models.naming import Edit, Naming, change_names
from scda.models.predictor import Predictor, load_predictor
from scda.serve.labelling.label import label
from scda.serve.labelling.outputs import Options
from scda.serve.review.promote import promote
from tests.bundles import make_bundle, picture
from tests.conftest import Scda

# The known classes of a source that was sorted by `label` before: blue, green and red.
SORTED = ("unknown", "discovered-000", "known-001")
TARGETS = {"b.jpg": "blue", "g.jpg": "green", "r.jpg": "red", "y.jpg": "yellow", "c.jpg": "cyan"}


@pytest.fixture
def sorted_bundle(tmp_path: Path) -> Path:
    return make_bundle(tmp_path / "bundle", labels=SORTED, targets=TARGETS)


@pytest.fixture
def target(tmp_path: Path) -> Path:
    folder = tmp_path / "target"
    folder.mkdir()
    for name, colour in TARGETS.items():
        (folder / name).write_bytes(picture(colour))
    return folder


def loaded(bundle: Path) -> Predictor:
    return load_predictor(bundle, provider="cpu", threads=1)


def edited(bundle: Path, *edits: Edit) -> Names:
    def change(naming: Naming, names: Names) -> Names:
        for edit in edits:
            names = naming.apply(names, edit)
        return names

    return change_names(bundle, change)


def scored(bundle: Path, root: Path, folders: dict[str, str]) -> tuple[Scored, dict[str, object]]:
    """Evaluate folders of one image each, name → colour."""
    for name, colour in folders.items():
        (root / name).mkdir(parents=True)
        (root / name / "1.jpg").write_bytes(picture(colour))
    predictor = loaded(bundle)
    found = score(predictor, root, on_progress=lambda done, total: None)
    return found, evaluate(found, predictor)


def test_a_folder_called_as_an_id_is_its_class(sorted_bundle: Path, tmp_path: Path) -> None:
    folders = dict(zip(SORTED, ("blue", "green", "red"), strict=True)) | {"new": "yellow"}
    found, fields = scored(sorted_bundle, tmp_path / "labelled", folders)
    assert found.implicit_names == ["new"]
    assert (fields["os_star"], fields["hos"]) == (100.0, 100.0)


@pytest.mark.parametrize("dropped", ["discovered-000", "discovered-001", "known-002"])
def test_a_dropped_class_is_not_the_one_called_unknown(
    sorted_bundle: Path, tmp_path: Path, dropped: str
) -> None:
    edited(sorted_bundle, Edit("drop", [dropped]))
    found, fields = scored(sorted_bundle, tmp_path / "labelled", {"unknown": "blue"})
    assert (found.implicit_names, fields["os_star"]) == ([], 100.0)


@pytest.mark.parametrize("class_id", ["known-000", "known-001", "known-002", "discovered-000"])
def test_what_was_dropped_can_be_restored(sorted_bundle: Path, class_id: str) -> None:
    names = edited(sorted_bundle, Edit("drop", [class_id]), Edit("restore", [class_id]))
    assert names.state(class_id) == Names().state(class_id)
    named = edited(sorted_bundle, Edit("name", [class_id], "x"), Edit("name", [class_id], ""))
    assert named.labels == {}


@pytest.mark.parametrize("text", ["unknown", "discovered-000", "known-001", "discovered-001"])
def test_the_id_of_another_class_is_refused_with_the_way_out(
    scda: Scda, sorted_bundle: Path, text: str
) -> None:
    done = scda("names", sorted_bundle, "--set", f"known-002={text}x", "--set", f"known-000={text}")
    if text == "unknown":  # its own label
        assert done.returncode == 0
        return
    assert done.returncode == 2
    assert "is the id of another class; choose another label, or merge the two" in done.stderr
    assert not (sorted_bundle / NAMES).exists()


@pytest.mark.parametrize(
    "text", ["\u200b", "\u2060\u200d", "\u3164", "\ufe0f", "\u2800 \u2800", "\u00ad", "\U000e0020"]
)
def test_a_label_that_nobody_can_see_is_refused(hostile_bundle: Path, text: str) -> None:
    naming = Naming(read_manifest(hostile_bundle).classes)
    with pytest.raises(UsageError, match=r"has no visible character; expected a name"):
        naming.apply(Names(), Edit("name", ["known-000"], text))


@pytest.mark.parametrize(
    "text", ["green\u200b", "\u200egreen", "gre\u00aden", " green", "green\ufe0f", "unknown\u200b"]
)
def test_labels_that_look_the_same_are_refused(hostile_bundle: Path, text: str) -> None:
    naming = Naming(read_manifest(hostile_bundle).classes)
    with pytest.raises(UsageError, match=r"called .* already|contains the character"):
        naming.apply(Names(), Edit("name", ["known-000"], text))


@pytest.mark.parametrize("text", ["\U0001f469\u200d\U0001f52c", "a\u200cb", "e\u0301", "a b"])
def test_a_label_may_be_anything_a_person_types(hostile_bundle: Path, text: str) -> None:
    naming = Naming(read_manifest(hostile_bundle).classes)
    assert as_seen(naming.apply(Names(), Edit("name", ["known-000"], text)).labels["known-000"])


@pytest.mark.parametrize("text", ['"\\ud800"', '"a\\udfffb"'])
def test_a_label_that_is_no_text_is_a_damaged_file(tmp_path: Path, text: str) -> None:
    bundle = make_bundle(tmp_path / "bundle")
    (bundle / NAMES).write_text(f'{{"version": 1, "labels": {{"known-000": {text}}}}}')
    with pytest.raises(GateError, match="not a names file"):
        read_names(bundle, read_manifest(bundle))


def test_a_summary_and_sorted_folders_keep_classes_apart(
    sorted_bundle: Path, target: Path, tmp_path: Path
) -> None:
    options = Options(sort_into=tmp_path / "sorted")
    edited(sorted_bundle, Edit("drop", ["discovered-001"]))
    summary = label(loaded(sorted_bundle), [target], [], options=options)
    assert summary.labels == {
        "unknown (known-000)": 1,
        "unknown (unknown)": 1,
        "discovered-000 (known-001)": 1,
        "discovered-000 (discovered-000)": 1,
        "known-001": 1,
    }
    assert {path.parent.name: path.name for path in tmp_path.glob("sorted/*/*")} == {
        "unknown": "c.jpg",
        "unknown-2": "b.jpg",
        "discovered-000": "g.jpg",
        "discovered-000-2": "y.jpg",
        "known-001": "r.jpg",
    }


def test_promoted_classes_of_one_label_keep_apart(target: Path, tmp_path: Path) -> None:
    bundle = make_bundle(tmp_path / "bundle", labels=("x", "x", "y"), targets=TARGETS)
    edited(bundle, Edit("name", ["discovered-000"], "z"))
    source = tmp_path / "source"
    for name in ("x", "y"):
        (source / name).mkdir(parents=True)
        (source / name / "s.jpg").write_bytes(picture("red"))
    done = promote(bundle, tmp_path / "out", target=target, source=source, min_confidence=0)
    assert done.counts == {"x (known-000)": 5, "x (known-001)": 1, "y": 1}
    assert len(list((tmp_path / "out" / "x-2").iterdir())) == 1


def test_the_report_shows_the_name_of_a_folder_called_as_an_id(tmp_path: Path) -> None:
    bundle = make_bundle(tmp_path / "b", labels=("known-000", "discovered-000", "x"))
    groups = make_groups(bundle, read_manifest(bundle), [])
    assert [groups.brief(i) for i in ("known-000", "known-001", "discovered-001")] == [
        "known-000",
        "discovered-000",
        "new 1",
    ]


def test_training_warns_of_folders_with_names_of_its_own(
    capsys: pytest.CaptureFixture[str],
) -> None:
    _warn_of_names(["a", "known-1", "unknowns", "review board"], Reporter())
    assert capsys.readouterr().err == ""
    _warn_of_names([*SORTED, "review"], Reporter())
    said = capsys.readouterr().err
    assert "class folders have names that scda gives: unknown, discovered-000, known-001" in said


def test_every_class_of_a_json_listing_has_its_id(scda: Scda, sorted_bundle: Path) -> None:
    done = scda("names", sorted_bundle, "--json")
    classes = json.loads(done.stdout)["classes"]
    assert [one["class_id"] for one in classes] == [
        info.class_id for info in read_manifest(sorted_bundle).classes
    ]
    assert isinstance(read_manifest(sorted_bundle).classes[0], ClassInfo)
