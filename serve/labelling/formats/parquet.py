"""Rows as a Parquet file with a fixed schema."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from scda.models.bundle import SCHEMA_VERSION
from scda.models.files import printable
from scda.serve.labelling.formats.rows import COLUMNS, LabellingInfo, Row, Write

HEAD = b"PAR1"
MARK = b"scda_model_id"  # in the metadata of every file
ROW_GROUP = 16_384  # rows; about 15 MB of memory
_AT_ONCE = 256  # rows; smaller batches spend more memory on columns than on values


def _entries(value: str) -> pa.DataType:
    fields = [("class_id", pa.string()), ("label", pa.string()), (value, pa.float64())]
    return pa.list_(pa.struct(fields))


_TYPES: dict[str, pa.DataType] = {
    "confidence": pa.float64(),
    "outlier": pa.bool_(),
    "entropy": pa.float64(),
    "margin": pa.float64(),
    "nearest": _entries("distance"),
    "top": _entries("confidence"),
    "names_version": pa.int64(),
    "review": pa.bool_(),
}
SCHEMA = pa.schema([(name, _TYPES.get(name, pa.string())) for name in COLUMNS])


def schema_of(model_id: str, names_version: int) -> pa.Schema:
    """Return the schema of a file, with the model in its metadata."""
    metadata = {
        MARK.decode(): model_id,
        "scda_schema_version": str(SCHEMA_VERSION),
        "names_version": str(names_version),
    }
    return SCHEMA.with_metadata(metadata)


def record_batch(rows: Sequence[Row]) -> pa.RecordBatch:
    """Return rows as an Arrow batch, with names as in `printable`."""
    return pa.RecordBatch.from_pylist(list(map(_values, rows)), schema=SCHEMA)


@contextmanager
def write_parquet(file: BinaryIO, about: LabellingInfo) -> Iterator[Write]:
    """Give a function that writes rows in groups of `ROW_GROUP`, kept in memory until complete.

    The file does not depend on the batches in which rows arrive.
    """
    schema = schema_of(about.model_id, about.names_version)
    writer = pq.ParquetWriter(file, schema)
    new: list[dict[str, Any]] = []
    waiting: list[pa.RecordBatch] = []

    def write(rows: Sequence[Row]) -> None:
        new.extend(map(_values, rows))
        if len(new) >= _AT_ONCE:
            convert()

    def convert() -> None:
        waiting.append(pa.RecordBatch.from_pylist(new, schema=schema))
        new.clear()
        if sum(batch.num_rows for batch in waiting) >= ROW_GROUP:
            put(pa.Table.from_batches(waiting, schema))

    def put(table: pa.Table) -> None:
        while table.num_rows >= ROW_GROUP:
            put_group(table.slice(0, ROW_GROUP))
            table = table.slice(ROW_GROUP)
        waiting[:] = table.to_batches()

    def put_group(table: pa.Table) -> None:
        if table.num_rows:
            writer.write_table(table.combine_chunks(), row_group_size=ROW_GROUP)

    try:
        yield write
        convert()
        put_group(pa.Table.from_batches(waiting, schema))
        writer.close()
    except BaseException:
        # Left open, it would write its footer at garbage collection, into a closed file.
        with suppress(Exception):
            writer.close()
        raise


def _values(row: Row) -> dict[str, Any]:
    return {
        name: printable(value) if isinstance(value, str) else value
        for name, value in row.to_json().items()
    }
