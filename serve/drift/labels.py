"""The rows of `scda-adapt label` as a stream of answers, read in pieces."""

import csv
import heapq
import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

from scda.models.bundle import Manifest
from scda.models.drift.compare import Sample
from scda.models.errors import DataError, UsageError
from scda.models.names import UNKNOWN, Names

_COLUMNS = ("path", "status", "class_id", "confidence", "outlier", "nearest", "model_id")
_FARTHEST = 24  # images that are kept of a stream, and of each class
_LONGEST_CELL = 1 << 20  # bytes of a cell of a CSV file
_ROWS = 4096  # rows of a Parquet file in memory
# What rows of another form raise: JSON of any depth, numbers of any size, empty lists.
_DAMAGED = (
    *(ArithmeticError, LookupError, RecursionError, TypeError, ValueError),
    *(csv.Error, pa.ArrowException),
)

Rows: TypeAlias = Iterator[dict[str, Any]]


@dataclass(frozen=True, order=True)
class Example:
    """An image of a stream; the order is that of the distances."""

    distance: float  # to the nearest centroid
    path: str  # as in the labels
    class_id: str
    confidence: float


@dataclass
class Labels:
    """One output of a labelling."""

    path: Path
    sample: Sample = field(default_factory=Sample)
    failed: int = 0  # rows with an error
    farthest: list[Example] = field(default_factory=list)  # of all images, the farthest first
    of_class: dict[str, list[Example]] = field(default_factory=dict)  # class id → its farthest


def read_labels(path: Path, manifest: Manifest, names: Names) -> Labels:
    """Return the answers in a CSV, JSONL or Parquet file that `label` wrote.

    Args:
        path: The file.
        manifest: Manifest of the bundle that it was labelled with.
        names: The current names, whose merges and drops are applied.

    Raises:
        UsageError: If there is no such file, or its name has another ending.
        DataError: If the file is not an output of `label`, or of another model.
    """
    found, known = Labels(path), set(manifest.class_ids)
    try:
        with _long_cells():
            for row in _rows(path):
                if row["status"] != "ok":
                    found.failed += 1
                    continue
                if row["model_id"] != manifest.id:
                    raise DataError(
                        f"{path}: labels of the model {row['model_id']}, expected those of "
                        f"{manifest.id}; label the images with this bundle"
                    )
                own = str(row["class_id"])
                class_id = names.resolve(own) if own in known else UNKNOWN
                _add(found, class_id, row)
    except _DAMAGED as error:
        raise DataError(
            f"{path}: not an output of scda-adapt label: {type(error).__name__}: {error}"
        ) from None
    found.farthest.sort(reverse=True)
    for examples in found.of_class.values():
        examples.sort(reverse=True)
    return found


def _add(labels: Labels, class_id: str, row: dict[str, Any]) -> None:
    confidence, distance = float(row["confidence"]), float(row["nearest"][0]["distance"])
    if not (0 <= confidence <= 1 and 0 <= distance <= 2):
        raise ValueError(f"confidence {confidence}, distance {distance} in {row['path']!a}")
    outlier = row["outlier"] is True
    labels.sample.add(class_id, outlier=outlier, confidence=confidence, distance=distance)
    example = Example(distance, str(row["path"]), class_id, confidence)
    for kept in (labels.farthest, labels.of_class.setdefault(class_id, [])):
        if len(kept) < _FARTHEST:
            heapq.heappush(kept, example)
        else:
            heapq.heappushpop(kept, example)


def _rows(path: Path) -> Rows:
    readers = {".csv": _csv_rows, ".jsonl": _jsonl_rows, ".parquet": _parquet_rows}
    read = readers.get(path.suffix.lower())
    if read is None:
        raise UsageError(f"{path}: expected a file that ends in {', '.join(readers)}")
    try:
        yield from read(path)
    except OSError as error:
        raise UsageError(f"{path}: cannot read: {error.strerror or error}") from None


@contextmanager
def _long_cells() -> Iterator[None]:
    """Let the csv module, whose limit is of the whole process, read long cells for a while."""
    before = csv.field_size_limit(_LONGEST_CELL)
    try:
        yield
    finally:
        csv.field_size_limit(before)


def _csv_rows(path: Path) -> Rows:
    with path.open(encoding="utf-8", errors="surrogateescape", newline="") as file:
        for row in csv.DictReader(file):
            if row["status"] == "ok":
                yield {**row, "outlier": row["outlier"] == "true", **_nearest(row["nearest"])}
            else:
                yield row


def _jsonl_rows(path: Path) -> Rows:
    with path.open(encoding="utf-8") as file:
        yield from map(json.loads, file)


def _parquet_rows(path: Path) -> Rows:
    batches: Iterable[pa.RecordBatch] = pq.ParquetFile(path).iter_batches(
        _ROWS, columns=list(_COLUMNS)
    )
    for batch in batches:
        yield from batch.to_pylist()


def _nearest(text: str) -> dict[str, Any]:
    return {"nearest": json.loads(text)}
