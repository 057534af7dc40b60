import csv
import io
import json
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from scda.models.predictor import FIELDS
from scda.serve.labelling.formats.lines import write_csv, write_jsonl
from scda.serve.labelling.formats.rows import COLUMNS, Row
from tests.rows import ABOUT, BAD, GOOD, PREDICTION, file_names


def csv_rows(rows: Sequence[Row]) -> list[dict[str, str]]:
    file = io.BytesIO()
    with write_csv(file, ABOUT) as write:
        write(rows)
    text = file.getvalue().decode("utf-8", "surrogateescape")
    return list(csv.DictReader(io.StringIO(text, newline="")))


def jsonl_rows(rows: Sequence[Row]) -> list[dict[str, object]]:
    file = io.BytesIO()
    with write_jsonl(file, ABOUT) as write:
        write(rows)
    return [json.loads(line) for line in file.getvalue().decode("ascii").splitlines()]


def test_columns_start_with_the_file_and_end_with_the_prediction() -> None:
    assert ("path", "status", "error_code", "error", *FIELDS, "review") == COLUMNS
    assert list(jsonl_rows([GOOD])[0]) == list(csv_rows([BAD])[0]) == list(COLUMNS)


def test_jsonl_keeps_the_prediction_as_it_is() -> None:
    (row,) = jsonl_rows([GOOD])
    assert {name: row[name] for name in FIELDS} == PREDICTION.to_json()
    assert row["status"] == "ok"
    assert (row["error_code"], row["review"]) == (None, True)


def test_csv_holds_lists_as_json_text() -> None:
    (row,) = csv_rows([GOOD])
    assert row["label"] == PREDICTION.label
    assert json.loads(row["nearest"]) == list(PREDICTION.nearest)
    assert json.loads(row["top"]) == list(PREDICTION.top)
    assert (row["outlier"], row["confidence"], row["error"]) == ("false", "0.75", "")
    assert row["review"] == "true"


def test_an_error_row_has_no_prediction() -> None:
    (row,) = csv_rows([BAD])
    assert (row["status"], row["error_code"], row["error"]) == (
        "error",
        "cannot_decode",
        "damaged JPEG",
    )
    assert {row[name] for name in (*FIELDS, "review")} == {""}
    assert {jsonl_rows([BAD])[0][name] for name in (*FIELDS, "review")} == {None}


@given(st.lists(file_names, min_size=1, max_size=5))
def test_every_file_name_survives(names: list[str]) -> None:
    rows = [Row(name, BAD.answer) for name in names]
    assert [row["path"] for row in csv_rows(rows)] == names
    assert [row["path"] for row in jsonl_rows(rows)] == names
