"""The target images of the classes of a bundle, if the target folder still exists."""

import hashlib
import io
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from scda.models.bundle import NEIGHBOUR_ROWS, Manifest
from scda.models.decoding.content import read_bytes
from scda.models.decoding.reading import thumbnail
from scda.models.errors import GateError, ImageError
from scda.models.files import is_inside, printable
from scda.models.folders import walk
from scda.models.images import read_image
from scda.models.limits import LIMITS, ImageLimits
from scda.models.names import Names, to_nfc

THUMBNAIL_PX = 200


@dataclass(frozen=True)
class TargetImage:
    """One target image, as predicted after training."""

    path: str  # relative to the target folder, with "/"
    class_id: str  # predicted class, without merges
    confidence: float
    sha256: str = ""  # digest of the file; empty in a bundle of an earlier version


@dataclass(frozen=True)
class TargetFolder:
    """The files of a target folder by the names that a bundle has for them.

    A bundle holds names as text: those that are not UTF-8 with escapes, and those of a disk that
    decomposed them, or that was copied from one, in the other spelling.
    """

    root: Path

    def path(self, name: str) -> str:
        """Return the path of a file relative to the folder, or the name if there is no such file.

        Names are compared in composed Unicode only where the name itself does not exist.
        """
        return name if os.path.lexists(self.root / name) else self._others.get(_key(name), name)

    def read(self, image: TargetImage, *, max_bytes: int) -> bytes:
        """Return the bytes of an image.

        Raises:
            ImageError: If the file has vanished, or changed since the training.
        """
        data = read_bytes(self.root / self.path(image.path), max_bytes=max_bytes)
        if image.sha256 and hashlib.sha256(data).hexdigest() != image.sha256:
            raise ImageError("unreadable", "the file has changed since the training")
        return data

    @cached_property
    def _others(self) -> dict[str, str]:
        paths = (path.relative_to(self.root).as_posix() for path in walk(self.root))
        return {_key(path): path for path in paths}


def _key(name: str) -> str:
    return to_nfc(printable(name))


class TargetImages:
    """Every target image of a run, by row; `why_not` explains why images cannot be shown."""

    def __init__(
        self,
        images: Sequence[TargetImage],
        target: Path | None,
        why_not: str = "",
        *,
        limits: ImageLimits = LIMITS,
    ) -> None:
        """Take the images of a folder; `target` is None if they cannot be shown."""
        self._limits = limits
        self.images, self.target, self.why_not = images, target, why_not
        self._files = TargetFolder(target or Path())
        self._confidence = np.array([image.confidence for image in images])

    def rows(self, class_id: str, names: Names, *, surest_first: bool = True) -> list[int]:
        """Return the rows of a class and of classes merged into it, by confidence."""
        of_class = [
            row for row, one in enumerate(self.images) if names.resolve(one.class_id) == class_id
        ]
        order = np.argsort(self._confidence[of_class], kind="stable").tolist()
        return [of_class[i] for i in (reversed(order) if surest_first else order)]

    def rows_of(self, paths: Iterable[str]) -> list[int]:
        """Return the rows of images by their path, in this order, without those it has not."""
        row_of = {_key(image.path): row for row, image in enumerate(self.images)}
        return [row_of[key] for key in map(_key, paths) if key in row_of]

    def thumbnail(self, row: int) -> bytes:
        """Return a small JPEG of one image.

        Raises:
            ImageError: If the row does not exist, or its file is missing, changed or unusable.
        """
        if self.target is None or not 0 <= row < len(self.images):
            raise ImageError("not_found", f"no image {row}")
        data = self._files.read(self.images[row], max_bytes=self._limits.max_bytes)
        image = read_image(data, self._limits, reading=thumbnail(THUMBNAIL_PX))
        file = io.BytesIO()
        image.save(file, "JPEG", quality=85)
        return file.getvalue()


def open_target_images(
    bundle: Path, manifest: Manifest, target: Path | None = None
) -> TargetImages:
    """Return the target images of a bundle.

    Args:
        bundle: Folder of the bundle.
        manifest: Contents of its bundle.json.
        target: Folder of target images; None uses the folder of the training.

    Raises:
        GateError: If a path leads out of the target folder.
    """
    stored = manifest.run.get("target")
    root = target or (Path(stored) if stored else None)
    if not (bundle / NEIGHBOUR_ROWS).is_file():
        return TargetImages([], None, "the bundle was written without neighbours")
    images = read_target_images(bundle)
    if root is None or not root.is_dir():
        why_not = f"the target folder {root} does not exist on this machine; pass --target DIR"
        return TargetImages(images, None, why_not)
    return TargetImages(images, root, limits=ImageLimits.of_run(manifest.run))


def read_target_images(bundle: Path) -> list[TargetImage]:
    """Return the rows of neighbours.parquet, every path inside the target folder.

    Raises:
        GateError: If a path leads outside, or the file is missing.
    """
    if not (bundle / NEIGHBOUR_ROWS).is_file():
        raise GateError(f"{bundle}: no {NEIGHBOUR_ROWS} found; train without --no-neighbours")
    with (bundle / NEIGHBOUR_ROWS).open("rb") as file:
        return read_rows(file)


def read_rows(file: BinaryIO) -> list[TargetImage]:
    """Return the rows of an open neighbours.parquet, every path inside the target folder.

    Raises:
        GateError: If a path leads outside, or the file is damaged.
    """
    try:
        with pq.ParquetFile(file) as opened:  # `read_table` imports pandas where it is installed
            table = opened.read()
        names = [field.name for field in fields(TargetImage) if field.name in table.column_names]
        strange = [name for name in names if not _is_whole(table[name], name)]
        images = [TargetImage(**row) for row in table.select(names).to_pylist() if not strange]
    except (OSError, pa.ArrowException, TypeError) as error:  # TypeError: without a column
        raise GateError(f"{NEIGHBOUR_ROWS}: damaged: {error}") from None
    if strange:
        found = f"empty cells or another type in {strange[0]}"
        raise GateError(f"{NEIGHBOUR_ROWS}: damaged: found {found}")
    outside = [one.path for one in images if not is_inside(one.path)]
    if outside:  # a bundle from elsewhere must not reach out of the folder
        raise GateError(
            f"{NEIGHBOUR_ROWS} lists {outside[0]}, expected paths inside the target folder"
        )
    return images


def _is_whole(column: pa.ChunkedArray, name: str) -> bool:
    is_type = pa.types.is_floating if name == "confidence" else pa.types.is_string
    return not len(column) or (is_type(column.type) and not column.null_count)
