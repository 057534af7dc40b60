"""The target images nearest to a new image, by the features that the bundle keeps."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import faiss
import numpy as np
from numpy.typing import NDArray

from scda.models.bundle import NEIGHBOUR_ROWS, NEIGHBOURS, Manifest, open_verified
from scda.models.errors import GateError
from scda.models.index import nearest, read_index
from scda.serve.files.target_images import read_rows

COUNT = 8  # nearest images per answer


@dataclass(frozen=True)
class NearImage:
    """A target image near the given one; its path is relative, so no other folder is shown."""

    path: str  # relative to the target folder of the training, with "/"
    distance: float  # 1 - cosine, 0 to 2


class TargetIndex:
    """The features of the target images; empty for a bundle without neighbours."""

    def __init__(self, index: faiss.Index | None, paths: Sequence[str]) -> None:
        """Create an index from its vectors and their paths, in the order of the vectors."""
        self._index, self._paths = index, paths

    def nearest(self, features: NDArray[np.float32]) -> tuple[NearImage, ...]:
        """Return the images nearest to a feature vector (D,), nearest first."""
        if self._index is None:
            return ()
        distances, rows = nearest(self._index, features[None], COUNT)
        found = zip(rows[0], distances[0], strict=True)
        return tuple(NearImage(self._paths[row], float(distance)) for row, distance in found)


def open_target_index(folder: Path, manifest: Manifest, *, width: int) -> TargetIndex:
    """Return the index of the target images of a bundle.

    Args:
        folder: Folder of the bundle.
        manifest: Manifest of the bundle.
        width: Number of values D of a feature vector of its model.

    Raises:
        GateError: If the index does not match its rows or the model.
    """
    if NEIGHBOURS not in manifest.files:
        return TargetIndex(None, ())
    with open_verified(folder, manifest, NEIGHBOURS) as file:
        index = read_index(file, width=width)
    with open_verified(folder, manifest, NEIGHBOUR_ROWS) as file:
        paths = [picture.path for picture in read_rows(file)]
    if index.ntotal != len(paths):
        raise GateError(
            f"{folder}: {NEIGHBOURS} has {index.ntotal} vectors, {NEIGHBOUR_ROWS} has "
            f"{len(paths)} rows; expected the same number"
        )
    return TargetIndex(index if paths else None, paths)
