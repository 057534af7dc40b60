import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from scda.models.errors import GateError
from scda.models.names import UNKNOWN, Names, merge_matrix, read_names

IDS = ["known-000", "known-001", "discovered-000", "discovered-001", "discovered-002"]


def read(folder: Path, fields: Any) -> Names:
    path = folder / "names.json"
    path.write_text(fields if isinstance(fields, str) else json.dumps(fields))
    return read_names(path, IDS)


def test_without_a_file_nothing_was_said(tmp_path: Path) -> None:
    names = read_names(tmp_path / "names.json", IDS)
    assert names == Names()
    assert names.version == 0
    assert [names.resolve(class_id) for class_id in IDS] == IDS


def test_a_file_is_read(tmp_path: Path) -> None:
    fields = {
        "version": 3,
        "labels": {"discovered-000": "stapler"},
        "merges": {"discovered-001": "discovered-000"},
        "drops": ["discovered-002"],
    }
    assert read(tmp_path, fields) == Names(
        version=3,
        labels={"discovered-000": "stapler"},
        merges={"discovered-001": "discovered-000"},
        drops=frozenset({"discovered-002"}),
    )


def test_what_was_not_said_may_be_left_out(tmp_path: Path) -> None:
    assert read(tmp_path, {"version": 1}) == Names(version=1)


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
        read_names(tmp_path / "names.json", IDS)


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
