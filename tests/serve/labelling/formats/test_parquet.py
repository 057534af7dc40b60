import csv
import io
import json
import os
from collections.abc import Sequence
from pathlib import Path

import duckdb
import pandas as pd
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scda.serve.labelling.formats.lines import write_csv
from scda.serve.labelling.formats.parquet import SCHEMA, write_parquet
from scda.serve.labelling.formats.rows import COLUMNS, Row
from tests.rows import ABOUT, BAD, GOOD, PREDICTION, file_names

ROWS = [GOOD, BAD, Row("d.jpg", PREDICTION)]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "rows.parquet"


def write(path: Path, *batches: Sequence[Row]) -> None:
    with path.open("wb") as opened, write_parquet(opened, ABOUT) as put:
        for rows in batches:
            put(rows)


def csv_rows(rows: Sequence[Row]) -> list[dict[str, str]]:
    file = io.BytesIO()
    with write_csv(file, ABOUT) as put:
        put(rows)
    return list(csv.DictReader(io.StringIO(file.getvalue().decode(), newline="")))


def as_csv(value: object) -> str:
    """A value of Parquet as the CSV writes it."""
    if value is None:
        return ""
    return json.dumps(value) if isinstance(value, bool | list) else str(value)


def test_the_schema_is_the_columns_and_stays() -> None:
    assert tuple(SCHEMA.names) == COLUMNS
    assert str(SCHEMA.field("nearest").type) == (
        "list<item: struct<class_id: string, label: string, distance: double>>"
    )
    assert str(SCHEMA.field("class_id").type) == "string"
    assert str(SCHEMA.field("names_version").type) == "int64"
    assert {str(SCHEMA.field(name).type) for name in ("outlier", "review")} == {"bool"}


def test_the_metadata_names_the_model(file: Path) -> None:
    write(file, ROWS)
    metadata = pq.read_schema(file).metadata
    assert metadata[b"scda_model_id"] == b"0123456789abcdef"
    assert metadata[b"scda_schema_version"] == b"1"
    assert metadata[b"names_version"] == b"3"


def test_pandas_reads_the_rows_of_the_csv(file: Path, tmp_path: Path) -> None:
    write(file, ROWS)
    table = tmp_path / "rows.csv"
    with table.open("wb") as opened, write_csv(opened, ABOUT) as put:
        put(ROWS)
    ours, theirs = pd.read_parquet(file), pd.read_csv(table)
    assert list(ours.columns) == list(theirs.columns)
    plain = [name for name in COLUMNS if name not in ("nearest", "top")]
    for name in plain:
        assert ours[name].isna().tolist() == theirs[name].isna().tolist(), name
        assert ours[name].dropna().tolist() == theirs[name].dropna().tolist(), name
    for name in ("nearest", "top"):
        read = [None if v is None else [dict(entry) for entry in v] for v in ours[name]]
        assert read == [json.loads(v) if isinstance(v, str) else None for v in theirs[name]]


def test_duckdb_reads_the_rows_of_the_csv(file: Path) -> None:
    write(file, ROWS)
    with duckdb.connect() as connection:
        rows = connection.sql(f"SELECT * FROM '{file}'").fetchall()
        best = connection.sql(f"SELECT top[1].label FROM '{file}' WHERE status = 'ok'").fetchall()
    read = [dict(zip(COLUMNS, map(as_csv, row), strict=True)) for row in rows]
    assert read == csv_rows(ROWS)
    assert best == [(PREDICTION.label,)] * 2


def test_an_error_row_has_no_prediction(file: Path) -> None:
    write(file, [BAD])
    (row,) = pq.read_table(file).to_pylist()
    given = {name: value for name, value in row.items() if value is not None}
    assert given == {
        "path": "c.jpg",
        "status": "error",
        "error_code": "cannot_decode",
        "error": "damaged JPEG",
    }


@pytest.fixture
def small_groups(monkeypatch: pytest.MonkeyPatch) -> int:
    """Groups of so few rows that a test can fill them."""
    monkeypatch.setattr("scda.serve.labelling.formats.parquet.ROW_GROUP", 100)
    return 100


def test_rows_are_written_in_groups_however_they_come(small_groups: int, tmp_path: Path) -> None:
    rows = [ROWS[i % 3] for i in range(2 * small_groups + 7)]
    files = [tmp_path / f"{size}.parquet" for size in (1, 32, 150, 207)]
    for path in files:
        size = int(path.stem)
        write(path, *(rows[i : i + size] for i in range(0, len(rows), size)))
    metadata = pq.read_metadata(files[0])
    sizes = [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)]
    assert sizes == [small_groups, small_groups, 7]
    assert len({path.read_bytes() for path in files}) == 1


@pytest.mark.parametrize("groups", [0, 1])
def test_no_group_is_empty(small_groups: int, file: Path, groups: int) -> None:
    write(file, [BAD] * groups * small_groups)
    assert pq.read_metadata(file).num_row_groups == groups
    assert pq.read_table(file).num_rows == groups * small_groups


@given(st.lists(file_names, min_size=1, max_size=5))
def test_every_file_name_can_be_written(names: list[str]) -> None:
    file = io.BytesIO()
    with write_parquet(file, ABOUT) as put:
        put([Row(name, BAD.answer) for name in names])
    read = pq.read_table(io.BytesIO(file.getvalue())).column("path").to_pylist()
    assert read == [os.fsencode(name).decode("utf-8", "backslashreplace") for name in names]


def write_and_be_stopped(path: Path) -> None:
    with path.open("wb") as opened, write_parquet(opened, ABOUT) as put:
        put(ROWS)
        raise KeyboardInterrupt


def test_an_error_on_the_way_is_the_one_that_is_told(file: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        write_and_be_stopped(file)
