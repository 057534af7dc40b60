"""Names are compared in composed Unicode and kept as they are, also those that are not UTF-8."""

import os
from pathlib import Path
from unicodedata import normalize

import pytest

from scda.adapt.data.scan import scan_source
from scda.adapt.evaluation.evaluate import score
from scda.models.bundle import read_manifest
from scda.models.files import printable
from scda.models.naming import change_names
from scda.models.predictor import Predictor, load_predictor
from scda.serve.files.target_images import open_target_images
from scda.serve.labelling.label import label_rows
from scda.serve.labelling.sources import FileSelection, expand_patterns
from scda.serve.review.promote import promote
from tests.bundles import make_bundle, picture

WORDS = ("caf\u00e9", "\u00c5ngstr\u00f6m", "\ud55c\uad6d", "\u1e69", "\u304c", "\u00fcb\u00e9r.x")
BYTES = [b"caf\xe9", b"\xff\xfe", b"a\x80b", b"\xed\xa0\x80", b"ok\xc3"]  # none of them is UTF-8


def both(word: str) -> tuple[str, str]:
    composed, decomposed = normalize("NFC", word), normalize("NFD", word)
    assert composed != decomposed
    return composed, decomposed


def fill(folder: Path, colour: str = "red") -> None:
    folder.mkdir(parents=True)
    (folder / "1.jpg").write_bytes(picture(colour))


@pytest.mark.parametrize("word", WORDS)
def test_two_spellings_of_a_class_folder_are_one_class(tmp_path: Path, word: str) -> None:
    composed, decomposed = both(word)
    fill(tmp_path / composed)
    fill(tmp_path / decomposed)
    fill(tmp_path / "other")
    classes = scan_source(tmp_path).classes
    assert sorted(classes) == sorted([composed, "other"])
    assert [path.parent.name for path in classes[composed]] == sorted([composed, decomposed])


@pytest.mark.parametrize("raw", BYTES)
def test_a_class_folder_that_is_not_utf_8_is_its_class_again(tmp_path: Path, raw: bytes) -> None:
    root = tmp_path / "labelled"
    fill(root / os.fsdecode(raw), "green")
    (name,) = scan_source(root).classes
    assert name == printable(os.fsdecode(raw))
    bundle = make_bundle(tmp_path / "bundle", labels=("a", name, "b"))
    predictor = load_predictor(bundle, provider="cpu", threads=1)
    found = score(predictor, root, on_progress=lambda done, total: None)
    assert (found.implicit_names, found.true.tolist()) == ([], found.predicted.tolist())


@pytest.mark.parametrize("word", WORDS)
def test_patterns_fit_both_spellings(
    predictor: Predictor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, word: str
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in (*both(word), "x"):
        fill(Path("photos", name))
    for pattern in both(word):
        included = FileSelection(include=(f"{pattern}/*",))
        rows = label_rows(predictor, [Path("photos")], selection=included)
        assert {row.path for row in rows} == {f"{name}/1.jpg" for name in both(word)}
        excluded = FileSelection(exclude=(f"{pattern}*",))
        rows = label_rows(predictor, [Path("photos")], selection=excluded)
        assert [row.path for row in rows] == ["x/1.jpg"]
        assert expand_patterns([Path(f"photos/{pattern}*/*.jpg")]) == [
            Path("photos", name, "1.jpg") for name in sorted(both(word))
        ]


@pytest.mark.parametrize("raw", [*BYTES, *(os.fsencode(normalize("NFD", word)) for word in WORDS)])
def test_a_target_image_is_found_by_the_name_in_the_bundle(tmp_path: Path, raw: bytes) -> None:
    target, name = tmp_path / "target", os.fsdecode(raw)
    fill(target / "deep", "blue")
    (target / "deep" / "1.jpg").rename(target / "deep" / name)
    stored = normalize("NFC", printable(f"deep/{name}"))
    bundle = make_bundle(tmp_path / "bundle", targets={stored: "blue", "gone.jpg": "blue"})
    change_names(bundle, lambda naming, names: naming.name(names, "discovered-000", "new"))
    done = promote(bundle, tmp_path / "out", target=target)
    assert (done.counts, done.missing) == ({"blue": 1}, 1)
    assert [path.name for path in (tmp_path / "out" / "blue").iterdir()] == [name]
    assert raw in (tmp_path / "out" / "manifest.csv").read_bytes()
    assert open_target_images(bundle, read_manifest(bundle), target).thumbnail(0)
