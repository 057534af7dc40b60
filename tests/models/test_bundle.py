import dataclasses
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from scda.models.bundle import (
    MODEL,
    Manifest,
    bundle_folder,
    open_verified,
    read_manifest,
    write_bundle,
)
from scda.models.errors import GateError, ScdaError, UsageError
from scda.models.images import read_image
from scda.models.predictor import load_predictor
from scda.models.target_figures import TargetFigures
from scda.models.trust import ClassTrust, Doubt, Trust
from tests.bundles import make_bundle, picture

FILES = (
    "bundle.json",
    "model.onnx",
    "clusters.faiss",
    "parity.npz",
    *(f"exemplars/known-00{i}/0.jpg" for i in range(3)),
    *(f"exemplars/discovered-00{i}/0.jpg" for i in range(2)),
)


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def flip_a_byte(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(data)


def empty(path: Path) -> None:
    path.write_bytes(b"")


def make_a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def edit(bundle: Path, change: Callable[[dict[str, Any]], object], *, sign: bool = False) -> None:
    """Change bundle.json; with `sign` its id is made to fit, as a forger would."""
    path = bundle / "bundle.json"
    fields = json.loads(path.read_text())
    change(fields)
    path.write_text(json.dumps(fields))
    if sign:
        with pytest.raises(GateError) as caught:
            read_manifest(bundle)
        fields["id"] = str(caught.value).split("contents give ")[1].rstrip(")")
        path.write_text(json.dumps(fields))


def trusted(folder: Path) -> Path:
    """Write a bundle with an estimate of its accuracy."""
    estimate = Trust(expected_accuracy=0.9, low=0.8, high=1.0, measures={"separation": 2.5})
    figures = TargetFigures(images=40, outlier_share=0.025, mean_confidence=0.9)
    return make_bundle(folder, trust=estimate, on_target=figures)


def write(draft: Path, folder: Path, manifest: Manifest) -> Manifest:
    names = ("classes", "preprocessing", "thresholds", "status", "run")
    return write_bundle(draft, folder, **{name: getattr(manifest, name) for name in names})


@pytest.fixture
def draft(bundle: Path, tmp_path: Path) -> Path:
    """The files of a bundle that is yet to be written."""
    hidden = shutil.ignore_patterns("bundle.json")
    return shutil.copytree(bundle, tmp_path / "draft", ignore=hidden)


def test_the_files_of_the_test_bundle_are_all_tried_below(whole_bundle: Path) -> None:
    found = {p.relative_to(whole_bundle).as_posix() for p in whole_bundle.rglob("*") if p.is_file()}
    assert found == set(FILES)


def test_what_is_written_is_read_again(bundle: Path, draft: Path, tmp_path: Path) -> None:
    manifest = read_manifest(bundle)
    written = write(draft, tmp_path / "again", manifest)
    assert read_manifest(tmp_path / "again") == written == manifest
    assert set(manifest.files) == set(FILES) - {"bundle.json"}


def test_a_bundle_can_be_moved(bundle: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    moved = bundle.rename(tmp_path / "elsewhere" / "renamed")
    assert load_predictor(moved, provider="cpu", threads=1).manifest == read_manifest(moved)


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("damage", [truncate, flip_a_byte, empty, Path.unlink, make_a_folder])
def test_damage_to_any_file_is_found_and_named(
    bundle: Path, damage: Callable[[Path], None], name: str
) -> None:
    damage(bundle / name)
    with pytest.raises(GateError, match=rf"^[^\n]*{name}[^\n]*$"):
        load_predictor(bundle, provider="cpu", threads=1)


def test_a_damaged_file_is_named_with_its_bundle(bundle: Path) -> None:
    flip_a_byte(bundle / "model.onnx")
    with pytest.raises(GateError) as caught:
        read_manifest(bundle)
    assert str(caught.value) == f"{bundle}: model.onnx is damaged (checksum differs)"


def test_checksums_can_be_left_for_later(bundle: Path) -> None:
    flip_a_byte(bundle / "model.onnx")
    assert read_manifest(bundle, checked=False).class_ids[0] == "known-000"


@pytest.mark.parametrize("version", [0, 2, "1", None])
def test_another_schema_is_refused(bundle: Path, version: object) -> None:
    edit(bundle, lambda fields: fields.update(schema_version=version))
    with pytest.raises(GateError, match=rf"schema {version}, this version of scda reads 1$"):
        read_manifest(bundle)


@pytest.mark.parametrize(
    "change",
    [
        lambda fields: fields["classes"][0].update(label="cat"),
        lambda fields: fields["classes"].reverse(),
        lambda fields: fields["classes"][4]["radius"].update(q99=0.3),
        lambda fields: fields.update(status=["weak transfer"]),
        lambda fields: fields["files"].update({"model.onnx": "0" * 64}),
        lambda fields: fields["files"].pop("exemplars/known-000/0.jpg"),
        lambda fields: fields["thresholds"].update(outlier=1.0),
        lambda fields: fields.update(id="0" * 16),
    ],
)
def test_an_edited_bundle_json_no_longer_fits_its_id(
    bundle: Path, change: Callable[[dict[str, Any]], object]
) -> None:
    edit(bundle, change)
    with pytest.raises(GateError, match=r"bundle\.json: damaged \(its id is \w+, [^\n]*\)$"):
        read_manifest(bundle)


@pytest.mark.parametrize(
    "change",
    [
        lambda fields: fields.pop("classes"),
        lambda fields: fields.pop("id"),
        lambda fields: fields.pop("schema_version"),
        lambda fields: fields.pop("run"),
        lambda fields: fields.update(classes=None),
        lambda fields: fields.update(classes=[1]),
        lambda fields: fields.update(files=["model.onnx"]),
        lambda fields: fields.update(preprocessing=[]),
        lambda fields: fields["preprocessing"].update(crop_px=31),
        lambda fields: fields["classes"][0].pop("label"),
        lambda fields: fields["classes"][0].update(colour="red"),
        lambda fields: fields["classes"][0].pop("exemplars"),
        lambda fields: fields.update(new="field"),
    ],
)
def test_fields_that_are_missing_or_strange_are_refused(
    bundle: Path, change: Callable[[dict[str, Any]], object]
) -> None:
    edit(bundle, change)
    with pytest.raises(GateError, match=r"^[^\n]*bundle\.json: [^\n]+$"):
        read_manifest(bundle)


@pytest.mark.parametrize("text", ["[]", "7", "null", "{}", "[" * 100_000, '{"id": 1e999}', "\x00"])
def test_a_bundle_json_that_is_none_is_refused(bundle: Path, text: str) -> None:
    (bundle / "bundle.json").write_text(text)
    with pytest.raises(GateError, match=r"^[^\n]*bundle\.json: damaged: [^\n]+$"):
        read_manifest(bundle)


@pytest.mark.parametrize("path", ["../secret", "{root}/secret", "exemplars/../../secret"])
def test_a_forged_bundle_cannot_reach_out_of_its_folder(bundle: Path, path: str) -> None:
    (bundle.parent / "secret").write_text("secret")
    path = path.format(root=bundle.parent)

    def forge(fields: dict[str, Any]) -> None:
        fields["classes"][0]["exemplars"] = [path]
        fields["files"][path] = "0" * 64

    edit(bundle, forge, sign=True)
    with pytest.raises(GateError, match=r"expected a path inside the bundle$"):
        read_manifest(bundle, checked=False)


def test_an_exemplar_without_a_checksum_is_refused(bundle: Path) -> None:
    (bundle / "other.jpg").write_bytes(b"")
    edit(bundle, lambda fields: fields["classes"][0].update(exemplars=["other.jpg"]), sign=True)
    with pytest.raises(GateError, match=r"bundle\.json does not list other\.jpg$"):
        read_manifest(bundle)


def test_a_model_without_a_checksum_is_refused(bundle: Path) -> None:
    edit(bundle, lambda fields: fields["files"].pop("model.onnx"), sign=True)
    with pytest.raises(GateError, match=r"bundle\.json does not list model\.onnx$"):
        read_manifest(bundle)


def test_the_estimate_of_accuracy_is_read_and_part_of_the_id(tmp_path: Path) -> None:
    manifest = read_manifest(trusted(tmp_path / "bundle"))
    assert manifest.trust is not None
    assert manifest.trust.measures == {"separation": 2.5}
    assert dataclasses.replace(manifest, trust=None).id != manifest.id


def test_the_trust_in_a_class_is_read_and_part_of_the_id(tmp_path: Path) -> None:
    trust = ClassTrust(stability=0.4, leak=0.3, similarity=0.6, doubts=(Doubt.LEAKS,))
    folder = make_bundle(tmp_path / "bundle", class_trust={"discovered-001": trust})
    manifest = read_manifest(folder)
    assert [info.trust for info in manifest.classes] == [None, None, None, None, trust]
    assert [info.doubtful for info in manifest.classes] == [False, False, False, False, True]
    assert manifest.id != read_manifest(make_bundle(tmp_path / "other")).id
    edit(folder, lambda fields: fields["classes"][4]["trust"].update(doubts=["ugly"]))
    with pytest.raises(GateError, match=r"bundle\.json: damaged: "):
        read_manifest(folder)


def test_a_bundle_without_an_estimate_has_no_field_for_it(whole_bundle: Path) -> None:
    # Its id has to be the one that an older version gave it.
    manifest = read_manifest(whole_bundle)
    assert manifest.trust is None
    assert "trust" not in json.loads((whole_bundle / "bundle.json").read_text())


def test_the_figures_of_the_target_are_read_and_part_of_the_id(tmp_path: Path) -> None:
    manifest = read_manifest(trusted(tmp_path / "bundle"))
    assert manifest.on_target == TargetFigures(images=40, outlier_share=0.025, mean_confidence=0.9)
    assert dataclasses.replace(manifest, on_target=None).id != manifest.id
    bundle = make_bundle(tmp_path / "older")
    assert read_manifest(bundle).on_target is None
    assert "on_target" not in json.loads((bundle / "bundle.json").read_text())


@pytest.mark.parametrize(
    "changes", [{"images": 0}, {"outlier_share": 1.5}, {"images": True}, {"x": 1}]
)
def test_strange_figures_of_the_target_are_refused(
    tmp_path: Path, changes: dict[str, object]
) -> None:
    bundle = trusted(tmp_path / "bundle")
    edit(bundle, lambda fields: fields["on_target"].update(changes))
    with pytest.raises(GateError, match=r"^[^\n]*bundle\.json: damaged[^\n]+$"):
        read_manifest(bundle)


@pytest.mark.parametrize(
    "calibration", [7, {"temperature": {}}, {"temperature": {"known-000": 0}, "expected": {}}]
)
def test_a_strange_calibration_is_refused(tmp_path: Path, calibration: object) -> None:
    bundle = make_bundle(tmp_path / "bundle")
    edit(bundle, lambda fields: fields.update(calibration=calibration))
    with pytest.raises(GateError, match=r"^[^\n]*bundle\.json: damaged[^\n]+$"):
        read_manifest(bundle)


@pytest.mark.parametrize("trust", [7, [], {"low": 0.5}, {"expected_accuracy": "high"}])
def test_a_strange_estimate_is_refused(tmp_path: Path, trust: object) -> None:
    bundle = trusted(tmp_path / "bundle")
    edit(bundle, lambda fields: fields.update(trust=trust))
    with pytest.raises(GateError, match=r"^[^\n]*bundle\.json: damaged[^\n]+$"):
        read_manifest(bundle)


def test_the_id_tells_everything_but_the_run(whole_bundle: Path) -> None:
    manifest = read_manifest(whole_bundle)
    moved = dataclasses.replace(manifest, run={"host": "another", "seconds": 7})
    changed = dataclasses.replace(manifest, status=("weak transfer",))
    assert moved.id == manifest.id != changed.id
    assert len(manifest.id) == 16


def test_another_run_is_no_damage(bundle: Path) -> None:
    before = read_manifest(bundle)
    edit(bundle, lambda fields: fields.update(run={"host": "another"}))
    assert read_manifest(bundle).id == before.id


def test_the_same_training_gives_the_same_bytes(whole_bundle: Path, tmp_path: Path) -> None:
    again = make_bundle(tmp_path / "again")
    for name in FILES:
        assert (again / name).read_bytes() == (whole_bundle / name).read_bytes(), name


def test_no_file_tells_where_it_was_made(tmp_path: Path) -> None:
    bundle = make_bundle(tmp_path / "bundle")
    for name in FILES:
        data = (bundle / name).read_bytes()
        assert not [path for path in (tmp_path, Path.cwd(), Path.home()) if bytes(path) in data]


def test_names_may_change_without_harm(bundle: Path) -> None:
    (bundle / "names.json").write_text('{"version": 1, "labels": {"known-000": "sky"}}')
    assert "names.json" not in read_manifest(bundle).files
    assert load_predictor(bundle, provider="cpu", threads=1).names.version == 1


def test_damaged_names_are_named(bundle: Path) -> None:
    (bundle / "names.json").write_text('{"version": ')
    with pytest.raises(GateError, match=r"^[^\n]*names\.json: damaged[^\n]*$"):
        load_predictor(bundle, provider="cpu", threads=1)


def test_a_class_folder_may_be_called_like_a_discovered_class(tmp_path: Path) -> None:
    folder = make_bundle(tmp_path / "bundle", labels=("discovered-000", "known-001", "unknown"))
    manifest = read_manifest(folder)
    assert manifest.class_ids[2:] == ["known-002", "discovered-000", "discovered-001"]
    assert manifest.num_known == 3
    predictor = load_predictor(folder, provider="cpu", threads=1)
    answers = predictor.predict(
        [predictor.prepare(read_image(picture(colour))) for colour in ("blue", "yellow")]
    )
    said = [(answer.label, answer.kind, answer.class_id) for answer in answers]
    assert said == [
        ("discovered-000", "known", "known-000"),
        ("discovered-000", "discovered", "discovered-000"),
    ]


def test_a_bundle_without_discovered_classes_is_whole(tmp_path: Path) -> None:
    folder = make_bundle(tmp_path / "bundle", num_discovered=0)
    assert load_predictor(folder, provider="cpu", threads=1).manifest.num_known == 3


@pytest.mark.parametrize("call", ["fsync", "rename"])
def test_a_bundle_that_cannot_be_written_leaves_the_old_one(
    bundle: Path, draft: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(28, "No space left on device")

    manifest = read_manifest(bundle)
    monkeypatch.setattr(os, call, refuse)
    with pytest.raises(OSError, match="No space left"):
        write(draft, bundle, manifest)
    assert read_manifest(bundle) == manifest
    assert sorted(path.name for path in bundle.parent.iterdir()) == ["bundle", "draft"]


def test_a_run_stands_for_its_bundle(bundle: Path) -> None:
    assert bundle_folder(bundle) == bundle_folder(bundle.parent) == bundle


@pytest.mark.parametrize(
    ("name", "error", "message"),
    [
        ("missing", UsageError, "no such folder; expected a bundle or a run"),
        ("mis\nsing", UsageError, "no such folder; expected a bundle or a run"),
        ("other", UsageError, "no bundle.json found; expected a bundle or a finished run"),
        ("file", UsageError, "no bundle.json found; expected a bundle or a finished run"),
        ("bundle", GateError, "no bundle.json found; expected a bundle or a finished run"),
        ("", GateError, "no bundle.json found; expected a bundle or a finished run"),
    ],
)
def test_where_there_is_no_bundle_the_path_is_named(
    bundle: Path, name: str, error: type[ScdaError], message: str
) -> None:
    (bundle / "bundle.json").unlink()
    (bundle.parent / "other").mkdir()
    (bundle.parent / "file").write_text("text")
    path = bundle.parent / name
    with pytest.raises(error) as caught:
        bundle_folder(path)
    assert str(caught.value) == f"{path}: {message}".replace("\n", " ")


def test_parts_that_do_not_fit_each_other_are_refused(bundle: Path) -> None:
    edit(bundle, lambda fields: fields["classes"].pop(), sign=True)
    with pytest.raises(GateError, match=r"faiss does not match bundle\.json: 5, expected 4$"):
        load_predictor(bundle, provider="cpu", threads=1)


def test_a_model_for_another_image_size_is_refused(
    bundle: Path, draft: Path, tmp_path: Path
) -> None:
    manifest = read_manifest(bundle)
    smaller = dataclasses.replace(manifest.preprocessing, crop_px=31)
    folder = tmp_path / "smaller"
    write(draft, folder, dataclasses.replace(manifest, preprocessing=smaller))
    with pytest.raises(
        GateError,
        match=r"model\.onnx does not match bundle\.json: \(32, 32, 3\), expected \(31, 31, 3\)$",
    ):
        load_predictor(folder, provider="cpu", threads=1)


def test_a_model_that_answers_otherwise_here_is_refused(
    bundle: Path, draft: Path, tmp_path: Path
) -> None:
    with np.load(bundle / "parity.npz") as arrays:
        stored = dict(arrays)
    stored["probabilities"][0, 0] += 0.01
    np.savez(draft / "parity.npz", **stored)
    write(draft, tmp_path / "drifted", read_manifest(bundle))
    with pytest.raises(GateError, match=r"^parity: cpu differs by 0\.01, expected 0\.0001$"):
        load_predictor(tmp_path / "drifted", provider="cpu", threads=1)


def test_what_is_read_is_what_was_verified(bundle: Path) -> None:
    manifest, data = read_manifest(bundle), (bundle / MODEL).read_bytes()
    with open_verified(bundle, manifest, MODEL) as file:
        (bundle / "new").write_bytes(b"another model")
        (bundle / "new").replace(bundle / MODEL)  # as a writer that is careful replaces a file
        assert file.read() == data
    with (
        pytest.raises(GateError, match=r"model\.onnx is damaged"),
        open_verified(bundle, manifest, MODEL),
    ):
        pass


def test_a_file_that_is_rewritten_while_it_is_read_is_refused(bundle: Path) -> None:
    manifest = read_manifest(bundle)
    with (
        pytest.raises(GateError, match=r"model\.onnx was rewritten while it was read; try again"),
        open_verified(bundle, manifest, MODEL),
    ):
        (bundle / MODEL).write_bytes(b"another model")


def test_a_file_that_vanished_since_is_named(bundle: Path) -> None:
    manifest = read_manifest(bundle)
    (bundle / MODEL).unlink()
    with (
        pytest.raises(GateError, match=r"model\.onnx: cannot read: No such file"),
        open_verified(bundle, manifest, MODEL),
    ):
        pass
