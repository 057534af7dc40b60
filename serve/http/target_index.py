"""The target images most like a new one, by the features that training left in the bundle."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import faiss
import numpy as np
from numpy.typing import NDArray

from scda.models.bundle import NEIGHBOUR_ROWS, NEIGHBOURS, Manifest
from scda.models.errors import GateError
from scda.models.index import nearest, read_index
from scda.serve.files.target_images import read_target_images

COUNT = 8  # images said of one


@dataclass(frozen=True)
class NearImage:
    """A target image near to the one asked about; nothing else is told of where it lies."""

    path: str  # relative to the target folder of the training, with "/"
    distance: float  # 1 - cosine, 0 to 2


class TargetIndex:
    """Every target image of a training; of a bundle without them, none."""

    def __init__(self, index: faiss.Index | None, paths: Sequence[str]) -> None:
        """Take the index and the paths of its vectors, in the order of its ids."""
        self._index, self._paths = index, paths

    def nearest(self, features: NDArray[np.float32]) -> tuple[NearImage, ...]:
        """Return the images nearest to a feature (D,), nearest first."""
        if self._index is None:
            return ()
        distances, rows = nearest(self._index, features[None], COUNT)
        found = zip(rows[0], distances[0], strict=True)
        return tuple(NearImage(self._paths[row], float(distance)) for row, distance in found)


def open_target_index(folder: Path, manifest: Manifest, *, width: int) -> TargetIndex:
    """Return the neighbours of a bundle.

    Args:
        folder: The bundle.
        manifest: What it holds.
        width: How long a feature of its model is.

    Raises:
        GateError: If the index and its rows do not fit each other or the model.
    """
    if NEIGHBOURS not in manifest.files:
        return TargetIndex(None, ())
    index = read_index(folder / NEIGHBOURS, width=width)
    paths = [picture.path for picture in read_target_images(folder)]
    if index.ntotal != len(paths):
        raise GateError(f"{folder}: {NEIGHBOURS} has {index.ntotal}, {NEIGHBOUR_ROWS} {len(paths)}")
    return TargetIndex(index if paths else None, paths)
