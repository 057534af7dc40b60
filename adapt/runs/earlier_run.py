"""Read an earlier run or bundle, for a training that takes over its classes."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from scda.adapt.continuity.earlier import Earlier
from scda.adapt.continuity.memory import Memory
from scda.adapt.runs.folder import RunFolder
from scda.adapt.runs.images_table import read_images
from scda.adapt.runs.tables import read_discovery
from scda.models.bundle import (
    MEMORY,
    NEIGHBOUR_ROWS,
    Manifest,
    bundle_folder,
    open_verified,
    read_manifest,
)
from scda.models.errors import GateError
from scda.models.names import read_names


def read_earlier(path: Path) -> Earlier:
    """Return an earlier model.

    Args:
        path: A finished run, or a bundle.

    Raises:
        UsageError: If `path` is neither.
        GateError: If it is damaged.
    """
    folder = bundle_folder(path)
    manifest = read_manifest(folder)
    images = _of_bundle(folder, manifest)
    if not images and folder != path:  # written without neighbours, or by an older version
        images = _of_run(RunFolder(path))
    strange = set(images.values()) - set(manifest.class_ids)
    if strange:
        raise GateError(
            f"{path}: damaged: found images of {min(map(str, strange))!a}, no class of it"
        )
    return Earlier(manifest, read_names(folder, manifest), images, _memory(folder, manifest))


def _of_bundle(folder: Path, manifest: Manifest) -> dict[str, str]:
    """Return SHA-256 → class id of every target image; nothing if the bundle does not say."""
    if NEIGHBOUR_ROWS not in manifest.files:
        return {}
    with open_verified(folder, manifest, NEIGHBOUR_ROWS) as file:
        try:
            rows = pq.read_table(file)
            if "sha256" not in rows.column_names:
                return {}
            columns = (rows[name].to_pylist() for name in ("sha256", "class_id"))
            return dict(zip(*columns, strict=True))
        except (KeyError, OSError, pa.ArrowException) as error:
            raise GateError(f"{folder}: {NEIGHBOUR_ROWS}: damaged: {error}") from None


def _of_run(run: RunFolder) -> dict[str, str]:
    if not run.images.is_file() or not run.discovery.is_file():
        return {}
    digests = read_images(run.images).target
    rows = read_discovery(run.discovery)
    return {digests[row.path]: row.cluster for row in rows if row.path in digests}


def _memory(folder: Path, manifest: Manifest) -> Memory | None:
    if MEMORY not in manifest.files:
        return None
    with open_verified(folder, manifest, MEMORY) as file:
        return Memory.load(file, len(manifest.classes))
