import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from scda.models.bundle import ClassInfo, Manifest
from scda.models.errors import GateError
from scda.models.names import UNKNOWN, Names, folder_label, merge_matrix, read_names
from scda.models.preprocess import Preprocessing

IDS = ["known-000", "known-001", "discovered-000", "discovered-001", "discovered-002"]


def manifest(ids: list[str]) -> Manifest:
    classes = tuple(
        ClassInfo(
            class_id=class_id,
            label=class_id,
            kind=class_id.partition("-")[0],
            size=1,
            mean_confidence=0.9,
            radius={},
            nearest_known=None,
            exemplars=(),
        )
        for class_id in ids
    )
    pixels = Preprocessing(resize_px=8, crop_px=8, mean=(0, 0, 0), std=(1, 1, 1))
    fields: dict[str, Any] = {"thresholds": {}, "status": ("ok",), "files": {}, "run": {}}
    return Manifest(classes=classes, preprocessing=pixels, **fields)


MANIFEST = manifest(IDS)


def names_of(**fields: Any) -> Names:
    return Names(model_id=MANIFEST.id, **fields)


def read(folder: Path, fields: Any) -> Names:
    text = fields if isinstance(fields, str) else json.dumps(fields)
    (folder / "names.json").write_text(text)
    return read_names(folder, MANIFEST)


def test_without_a_file_nothing_was_said(tmp_path: Path) -> None:
    names = read_names(tmp_path, MANIFEST)
    assert names == names_of()
    assert names.version == 0
    assert [names.resolve(class_id) for class_id in IDS] == IDS


def test_a_file_is_read(tmp_path: Path) -> None:
    fields = {
        "version": 3,
        "labels": {"discovered-000": "stapler"},
        "merges": {"discovered-001": "discovered-000"},
        "drops": ["discovered-002"],
    }
    assert read(tmp_path, fields) == names_of(
        version=3,
        labels={"discovered-000": "stapler"},
        merges={"discovered-001": "discovered-000"},
        drops=frozenset({"discovered-002"}),
    )


def test_what_was_not_said_may_be_left_out(tmp_path: Path) -> None:
    assert read(tmp_path, {"version": 1}) == names_of(version=1)


@pytest.mark.parametrize(
    "text",
    ["", "{", '{"version": 1', "\x00", "[" * 100_000, '{"version": 1} {"version": 2}'],
)
def test_a_file_that_is_no_json_is_damaged(tmp_path: Path, text: str) -> None:
    with pytest.raises(GateError, match=r"^[^\n]*names\.json: damaged: [^\n]+$"):
        read(tmp_path, text)


@pytest.mark.parametrize(
    "fields",
    [
        [],
        None,
        7,
        {},
        {"version": "two"},
        {"version": None},
        {"version": float("inf")},
        {"version": float("nan")},
        {"version": 1, "labels": []},
        {"version": 1, "merges": "known-000"},
        {"version": 1, "drops": 3},
    ],
)
def test_json_that_means_no_names_is_refused(tmp_path: Path, fields: Any) -> None:
    with pytest.raises(GateError, match=r"^[^\n]*names\.json: not a names file: [^\n]+$"):
        read(tmp_path, fields)


def test_bytes_that_are_no_text_are_damaged(tmp_path: Path) -> None:
    (tmp_path / "names.json").write_bytes(b'{"version": 1, "labels": {"known-000": "\xff"}}')
    with pytest.raises(GateError, match="damaged"):
        read_names(tmp_path, MANIFEST)


@pytest.mark.parametrize(
    "fields",
    [
        {"labels": {"discovered-007": "x"}},
        {"merges": {"discovered-007": "known-000"}},
        {"merges": {"known-000": "discovered-007"}},
        {"drops": ["discovered-007"]},
    ],
)
def test_a_class_that_the_bundle_lacks_is_named(tmp_path: Path, fields: dict[str, Any]) -> None:
    with pytest.raises(GateError, match=r"names\.json: the bundle has no class discovered-007"):
        read(tmp_path, {"version": 1, **fields})


@pytest.mark.parametrize("found", ["0123456789abcdef", "", "\u202e" * 99, None, 7])
def test_the_names_of_another_model_are_refused(tmp_path: Path, found: Any) -> None:
    wanted = f"expected those of {MANIFEST.id}; restore the file from a copy, or delete it"
    with pytest.raises(GateError, match=f"names.json: names of the model '[ -~]*', {wanted}$"):
        read(tmp_path, {"version": 1, "model_id": found})


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "names.json").mkdir()
    with pytest.raises(GateError, match=r"names\.json: cannot read: Is a directory"):
        read_names(tmp_path, MANIFEST)


@pytest.mark.parametrize(
    ("name", "label"),
    [
        ("cafe\u0301", "caf\u00e9"),
        ("gnp\u202eexe", r"gnp\u202eexe"),
        ("a\x1b[31m\nb", r"a\x1b[31m\nb"),
        ("\u0645\u06cc\u200c\u062e", "\u0645\u06cc\u200c\u062e"),
        ("a\udcffb", r"a\xffb"),
    ],
)
def test_a_folder_with_characters_that_are_not_shown_gets_a_label_that_shows_them(
    name: str, label: str
) -> None:
    assert folder_label(name) == label


@pytest.mark.parametrize(
    "merges",
    [
        {"discovered-000": "discovered-001", "discovered-001": "discovered-002"},
        {"discovered-000": "discovered-001", "discovered-001": "discovered-000"},
        {"discovered-000": "discovered-000"},
    ],
)
def test_a_chain_of_merges_is_refused(tmp_path: Path, merges: dict[str, str]) -> None:
    with pytest.raises(GateError, match="both merged away and the target of a merge"):
        read(tmp_path, {"version": 1, "merges": merges})


def test_a_merged_class_answers_as_the_other() -> None:
    names = Names(merges={"discovered-001": "known-000"})
    assert names.resolve("discovered-001") == names.resolve("known-000") == "known-000"


def test_a_dropped_class_is_unknown_and_so_is_what_was_merged_into_it() -> None:
    names = Names(merges={"discovered-001": "discovered-000"}, drops=frozenset({"discovered-000"}))
    assert names.resolve("discovered-000") == names.resolve("discovered-001") == UNKNOWN
    assert names.resolve("discovered-002") == "discovered-002"


def test_dropping_one_of_two_merged_classes_leaves_the_other() -> None:
    names = Names(merges={"discovered-001": "discovered-000"}, drops=frozenset({"discovered-001"}))
    assert names.resolve("discovered-001") == UNKNOWN
    assert names.resolve("discovered-000") == "discovered-000"


def test_the_matrix_sums_what_is_merged_and_dropped() -> None:
    names = Names(merges={"discovered-001": "known-001"}, drops=frozenset({"discovered-000"}))
    remaining, matrix = merge_matrix(names, IDS)
    assert remaining == ["known-000", "known-001", "discovered-002", UNKNOWN]
    sums = np.array([0.1, 0.2, 0.3, 0.15, 0.25], np.float32) @ matrix
    np.testing.assert_allclose(sums, [0.1, 0.35, 0.25, 0.3], rtol=1e-6)


@pytest.mark.parametrize(
    "names",
    [
        Names(),
        Names(drops=frozenset(IDS)),
        Names(merges=dict.fromkeys(IDS[1:], IDS[0])),
        Names(merges={IDS[0]: IDS[4]}, drops=frozenset({IDS[4], IDS[2]})),
    ],
)
def test_every_class_gives_its_whole_probability_to_one(names: Names) -> None:
    remaining, matrix = merge_matrix(names, IDS)
    assert matrix.shape == (len(IDS), len(remaining))
    assert (matrix.sum(axis=1) == 1).all()
    assert (matrix.sum(axis=0) > 0).all()
