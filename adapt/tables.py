"""The run's CSV tables: what was said of every target image, and what could not be read."""

import csv
import io
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from scda.adapt.data import Images
from scda.adapt.discover import entropy
from scda.adapt.finish import Final
from scda.adapt.scan import Rejected
from scda.models.files import write_atomically
from scda.models.index import normalised


def write_discovery(path: Path, final: Final, target: Images) -> None:
    """Write discovery.csv: per target image its pseudo-label, entropy, class and distance."""
    ids = np.array(final.class_ids, object)
    pseudo = np.full(len(target.paths), "", object)
    if final.discovery:
        candidates = final.discovery.candidates
        pseudo[candidates.known] = ids[candidates.known_labels]
        pseudo[candidates.implicit] = ids[len(final.class_names) + final.discovery.implicit_labels]
    entropies = entropy(np.log(np.maximum(final.probabilities, np.finfo(np.float32).tiny)))
    own = final.centroids[final.predicted]
    distances = np.clip(1 - (normalised(final.features) * own).sum(axis=1), 0, 2)
    rows = zip(
        target.names(),
        pseudo,
        (f"{value:.6f}" for value in entropies),
        ids[final.predicted],
        (f"{value:.6f}" for value in distances),
        strict=True,
    )
    _write(path, ("path", "pseudo_label", "entropy", "cluster", "distance"), rows)


def write_rejected(path: Path, rejected: list[Rejected]) -> None:
    """Write rejected.csv: per unusable file its code and why."""
    rows = ((bad.path, bad.code, bad.message) for bad in rejected)
    _write(path, ("path", "error_code", "error"), rows)


def _write(path: Path, header: tuple[str, ...], rows: Iterable[Iterable[Any]]) -> None:
    buffer = io.StringIO()
    writer = csv.writer(buffer)
    writer.writerow(header)
    writer.writerows(rows)
    # A file name need not be UTF-8: its bytes are written as they are.
    write_atomically(path, buffer.getvalue().encode("utf-8", "surrogateescape"))
