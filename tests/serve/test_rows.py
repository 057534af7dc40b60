import csv
import io
import json
import os
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scda.models.errors import ImageError, UsageError
from scda.models.predictor import FIELDS, Prediction
from scda.serve.rows import COLUMNS, Row, write_csv, write_jsonl, write_rows

PREDICTION = Prediction(
    label='red, "bright"',
    kind="known",
    class_id="known-002",
    confidence=0.75,
    outlier=False,
    entropy=0.5,
    margin=0.25,
    nearest=({"class_id": "known-002", "label": "red", "distance": 0.125},),
    top=({"class_id": "known-002", "label": "red", "confidence": 0.75},),
    model_id="0123456789abcdef",
    names_version=3,
)
GOOD = Row("a/b.jpg", PREDICTION)
BAD = Row("c.jpg", ImageError("cannot_decode", "damaged JPEG"))
# Every name that a Linux file system allows, as `os.fsdecode` gives it.
file_names = st.binary(min_size=1, max_size=20).map(
    lambda raw: os.fsdecode(raw.replace(b"\0", b"x"))
)


def csv_rows(rows: Sequence[Row]) -> list[dict[str, str]]:
    file = io.BytesIO()
    with write_csv(file) as write:
        write(rows)
    text = file.getvalue().decode("utf-8", "surrogateescape")
    return list(csv.DictReader(io.StringIO(text, newline="")))


def jsonl_rows(rows: Sequence[Row]) -> list[dict[str, object]]:
    file = io.BytesIO()
    with write_jsonl(file) as write:
        write(rows)
    return [json.loads(line) for line in file.getvalue().decode("ascii").splitlines()]


def test_columns_start_with_the_file_and_end_with_the_prediction() -> None:
    assert ("path", "status", "error_code", "error", *FIELDS) == COLUMNS
    assert list(jsonl_rows([GOOD])[0]) == list(csv_rows([BAD])[0]) == list(COLUMNS)


def test_jsonl_keeps_the_prediction_as_it_is() -> None:
    (row,) = jsonl_rows([GOOD])
    assert {name: row[name] for name in FIELDS} == PREDICTION.to_json()
    assert row["status"] == "ok"
    assert row["error_code"] is None


def test_csv_holds_lists_as_json_text() -> None:
    (row,) = csv_rows([GOOD])
    assert row["label"] == PREDICTION.label
    assert json.loads(row["nearest"]) == list(PREDICTION.nearest)
    assert json.loads(row["top"]) == list(PREDICTION.top)
    assert (row["outlier"], row["confidence"], row["error"]) == ("false", "0.75", "")


def test_an_error_row_has_no_prediction() -> None:
    (row,) = csv_rows([BAD])
    assert (row["status"], row["error_code"], row["error"]) == (
        "error",
        "cannot_decode",
        "damaged JPEG",
    )
    assert {row[name] for name in FIELDS} == {""}
    assert {jsonl_rows([BAD])[0][name] for name in FIELDS} == {None}


@given(st.lists(file_names, min_size=1, max_size=5))
def test_every_file_name_survives(names: list[str]) -> None:
    rows = [Row(name, BAD.answer) for name in names]
    assert [row["path"] for row in csv_rows(rows)] == names
    assert [row["path"] for row in jsonl_rows(rows)] == names


def test_several_outputs_get_the_same_rows(tmp_path: Path) -> None:
    outs = [str(tmp_path / "rows.csv"), str(tmp_path / "rows.JSONL")]
    with write_rows(outs) as write:
        write([GOOD])
        write([BAD])
        assert not any(map(os.path.exists, outs))
    assert Path(outs[0]).read_bytes().count(b"\r\n") == 3
    assert len(Path(outs[1]).read_text().splitlines()) == 2
    assert len(list(tmp_path.iterdir())) == 2


def write_and_be_stopped(out: Path) -> None:
    with write_rows([str(out)]) as write:
        write([GOOD])
        raise KeyboardInterrupt


def test_an_error_on_the_way_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    out = tmp_path / "rows.csv"
    out.write_text("old")
    with pytest.raises(KeyboardInterrupt):
        write_and_be_stopped(out)
    assert [path.name for path in tmp_path.iterdir()] == ["rows.csv"]
    assert out.read_text() == "old"


def test_a_dash_is_csv_on_standard_output(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    with write_rows(["-"]) as write:
        write([GOOD])
    lines = capfdbinary.readouterr().out.splitlines()
    assert lines[0].startswith(b"path,status,error_code,error,label,")
    assert lines[1].startswith(b"a/b.jpg,ok,")


@pytest.mark.parametrize(
    ("outs", "message"),
    [
        ([], r"no output; want a file ending in \.csv or \.jsonl, or -"),
        (["x.txt"], r"x\.txt: unknown ending; want \.csv or \.jsonl"),
        (["x"], "x: unknown ending"),
        (["x.csv", "./x.csv"], "the same output twice"),
        (["nowhere/x.csv"], "no folder nowhere"),
        (["folder.csv"], r"folder\.csv: is a folder"),
    ],
)
def test_an_output_that_cannot_be_is_named(
    outs: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("folder.csv").mkdir()
    with pytest.raises(UsageError, match=message), write_rows(outs):
        pass


def write_much(out: Path) -> None:
    with write_rows([str(out)]) as write:
        write([GOOD] * 1000)


def test_a_full_disk_is_one_line_and_leaves_nothing(tmp_path: Path) -> None:
    resource = pytest.importorskip("resource")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))
    try:
        with pytest.raises(UsageError, match=r"rows\.csv: cannot write: File too large"):
            write_much(tmp_path / "rows.csv")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert list(tmp_path.iterdir()) == []
