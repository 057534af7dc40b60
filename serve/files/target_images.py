"""The target images behind a bundle's classes, where the target folder is still at hand."""

import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from PIL import Image

from scda.models.bundle import NEIGHBOUR_ROWS, Manifest
from scda.models.errors import GateError, ImageError
from scda.models.files import is_inside
from scda.models.images import read_file
from scda.models.names import Names

THUMBNAIL_PX = 200


@dataclass(frozen=True)
class TargetImage:
    """One target image as training left it."""

    path: str  # relative to the target folder, with "/"
    class_id: str  # of the model's answer, no merges applied
    confidence: float


class TargetImages:
    """Every target image of a training, by row; `why_not` says why there is none."""

    def __init__(
        self, images: Sequence[TargetImage], target: Path | None, why_not: str = ""
    ) -> None:
        """Take the images of a folder; `target` is None where they cannot be shown."""
        self.images, self.target, self.why_not = images, target, why_not
        self._confidence = np.array([picture.confidence for picture in images])

    def rows(self, class_id: str, names: Names, *, surest_first: bool = True) -> list[int]:
        """Return the rows of a class and of what was merged into it, by confidence."""
        of_class = [
            row for row, one in enumerate(self.images) if names.resolve(one.class_id) == class_id
        ]
        order = np.argsort(self._confidence[of_class], kind="stable").tolist()
        return [of_class[i] for i in (reversed(order) if surest_first else order)]

    def thumbnail(self, row: int) -> bytes:
        """Return a small JPEG of one image.

        Raises:
            ImageError: If there is no such row, or its file is gone or no usable image by now.
        """
        if self.target is None or not 0 <= row < len(self.images):
            raise ImageError("not_found", f"no image {row}")
        image = read_file(self.target / self.images[row].path)
        image.thumbnail((THUMBNAIL_PX, THUMBNAIL_PX), Image.Resampling.BICUBIC)
        file = io.BytesIO()
        image.save(file, "JPEG", quality=85)
        return file.getvalue()


def open_target_images(
    bundle: Path, manifest: Manifest, target: Path | None = None
) -> TargetImages:
    """Return the gallery of a bundle, an empty one where it cannot be shown.

    Args:
        bundle: The bundle.
        manifest: Its contents.
        target: The folder of target images; where it was at training if not given.

    Raises:
        GateError: If the bundle's rows lead out of the target folder.
    """
    stored = manifest.run.get("target")
    root = target or (Path(stored) if stored else None)
    if not (bundle / NEIGHBOUR_ROWS).is_file():
        return TargetImages([], None, "the bundle was made without neighbours")
    images = read_target_images(bundle)
    if root is None or not root.is_dir():
        why_not = f"the target folder {root} is not on this machine; --target DIR says where it is"
        return TargetImages(images, None, why_not)
    return TargetImages(images, root)


def read_target_images(bundle: Path) -> list[TargetImage]:
    """Return the rows of neighbours.parquet, every path inside the target folder.

    Raises:
        GateError: If one is not, or there is no such file.
    """
    if not (bundle / NEIGHBOUR_ROWS).is_file():
        raise GateError(f"{bundle}: no {NEIGHBOUR_ROWS}; train without --no-neighbours")
    images = [TargetImage(**row) for row in pq.read_table(bundle / NEIGHBOUR_ROWS).to_pylist()]
    outside = [one.path for one in images if not is_inside(one.path)]
    if outside:  # a bundle from elsewhere must not reach out of the folder
        raise GateError(f"{NEIGHBOUR_ROWS} lists {outside[0]}, want paths inside the target")
    return images
