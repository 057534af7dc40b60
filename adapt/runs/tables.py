"""The CSV tables of a run: one row per target image, and one per unusable file."""

import csv
import io
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scda.adapt.data.image_files import Images
from scda.adapt.data.scan import Rejected
from scda.adapt.discovery.selection import entropy
from scda.adapt.export.final_model import FinalModel
from scda.adapt.export.rehearsal import Agreement
from scda.models.errors import GateError, UsageError
from scda.models.files import write_atomically

DISCOVERY = (
    "path",
    "pseudo_label",
    "entropy",
    "cluster",
    "distance",
    "confidence",
    "margin",
    "second",
    "outlier",
)
HELD_OUT = ("path", "class_id", "confidence", "uncalibrated", "agrees")


@dataclass(frozen=True)
class TargetRow:
    """One row of discovery.csv."""

    path: str  # relative to the target folder
    pseudo_label: str  # class id of its last pseudo-label; empty if it had none
    entropy: float  # nats
    cluster: str  # predicted class id
    distance: float  # distance to the centroid of the predicted class, 0 to 2
    confidence: float  # 0 to 1
    margin: float  # largest minus second largest probability
    second: str  # class id with the second largest probability
    outlier: bool  # farther from every centroid than 99% of that class's own images


@dataclass(frozen=True)
class HeldOutRow:
    """One row of held_out.csv; confidences are 0 to 1."""

    path: str  # relative to the target folder
    class_id: str  # predicted class
    confidence: float
    uncalibrated: float  # that of the softmax
    agrees: bool  # whether a second training, which never saw the image, predicts the same class


def write_discovery(path: Path, final: FinalModel, target: Images) -> None:
    """Write discovery.csv: pseudo-label, prediction, distance and uncertainty of target images."""
    ids = np.array(final.class_ids, object)
    entropies = entropy(np.log(np.maximum(final.probabilities, np.finfo(np.float32).tiny)))
    distances = final.target_distances
    ranked = np.argsort(-final.probabilities, axis=1, kind="stable")[:, :2]
    largest = np.take_along_axis(final.probabilities, ranked, axis=1)
    rows = zip(
        target.names(),
        _pseudo_labels(final, ids),
        _decimals(entropies),
        ids[final.predicted],
        _decimals(distances[np.arange(len(distances)), final.predicted]),
        _decimals(largest[:, 0]),
        _decimals(largest[:, 0] - largest[:, 1]),
        ids[ranked[:, 1]],
        np.where(final.outliers, "true", "false"),
        strict=True,
    )
    write_table(path, DISCOVERY, rows)


def read_discovery(path: Path) -> list[TargetRow]:
    """Return the rows of discovery.csv.

    Raises:
        UsageError: If the file does not exist.
        GateError: If it is damaged, or an old version without some of the columns.
    """
    try:
        text = path.read_bytes().decode("utf-8", "surrogateescape")
    except OSError:
        raise UsageError(f"{path}: not found; expected a finished run, train it again") from None
    rows = csv.DictReader(io.StringIO(text, newline=""))
    missing = [name for name in DISCOVERY if name not in (rows.fieldnames or ())]
    if missing:
        advice = "train the run again with this version"
        raise GateError(f"{path}: found no column {missing[0]}; {advice}")
    try:
        return [_row(fields) for fields in rows]
    except (TypeError, ValueError) as error:
        raise GateError(f"{path}: damaged: {error}") from None


def write_held_out(path: Path, final: FinalModel, target: Images, found: Agreement) -> None:
    """Write held_out.csv: whether a second training agrees on images that it never saw."""
    ids, names = np.array(final.class_ids, object), target.names()
    rows = zip(
        (names[row] for row in found.rows.tolist()),
        ids[final.predicted[found.rows]],
        _decimals(found.confidence),
        _decimals(found.uncalibrated),
        np.where(found.agrees, "true", "false"),
        strict=True,
    )
    write_table(path, HELD_OUT, rows)


def read_held_out(path: Path) -> list[HeldOutRow]:
    """Return the rows of held_out.csv; none if the file does not exist.

    Raises:
        GateError: If it is damaged.
    """
    if not path.is_file():
        return []
    text = path.read_bytes().decode("utf-8", "surrogateescape")
    try:
        return [
            HeldOutRow(
                path=fields["path"],
                class_id=fields["class_id"],
                confidence=float(fields["confidence"]),
                uncalibrated=float(fields["uncalibrated"]),
                agrees=fields["agrees"] == "true",
            )
            for fields in csv.DictReader(io.StringIO(text, newline=""))
        ]
    except (LookupError, TypeError, ValueError) as error:
        raise GateError(f"{path}: damaged: {error}") from None


def write_rejected(path: Path, rejected: list[Rejected]) -> None:
    """Write rejected.csv: the error code and the reason of every unusable file."""
    rows = ((bad.path, bad.code, bad.message) for bad in rejected)
    write_table(path, ("path", "error_code", "error"), rows)


def read_rejected(path: Path) -> list[dict[str, str]]:
    """Return the rows of rejected.csv; none if the file does not exist."""
    if not path.is_file():
        return []
    text = path.read_bytes().decode("utf-8", "surrogateescape")
    return list(csv.DictReader(io.StringIO(text, newline="")))


def _row(fields: dict[str, str]) -> TargetRow:
    return TargetRow(
        path=fields["path"],
        pseudo_label=fields["pseudo_label"],
        entropy=float(fields["entropy"]),
        cluster=fields["cluster"],
        distance=float(fields["distance"]),
        confidence=float(fields["confidence"]),
        margin=float(fields["margin"]),
        second=fields["second"],
        outlier=fields["outlier"] == "true",
    )


def _pseudo_labels(final: FinalModel, ids: NDArray[np.object_]) -> NDArray[np.object_]:
    pseudo = np.full(len(final.predicted), "", object)
    if final.discovery:
        candidates = final.discovery.candidates
        pseudo[candidates.known] = ids[candidates.known_labels]
        pseudo[candidates.implicit] = ids[len(final.class_names) + final.discovery.implicit_labels]
    return pseudo


def _decimals(values: NDArray[np.float32]) -> Iterable[str]:
    return (f"{value:.6f}" for value in values)


def write_table(path: Path, header: tuple[str, ...], rows: Iterable[Iterable[Any]]) -> None:
    """Write a CSV file, completely or not at all."""
    buffer = io.StringIO()
    writer = csv.writer(buffer)
    writer.writerow(header)
    writer.writerows(rows)
    # A file name need not be UTF-8: its bytes are written as they are.
    write_atomically(path, buffer.getvalue().encode("utf-8", "surrogateescape"))
