"""Nearest centroids and nearest target images, in cosine distance (1 - cosine, 0 to 2)."""

from pathlib import Path
from typing import BinaryIO

import faiss
import numpy as np
from numpy.typing import NDArray

from scda.models.errors import GateError

Features = NDArray[np.float32]
Ids = NDArray[np.int64]

EXACT_UP_TO = 100_000  # largest number of vectors in an exact index; above, it is approximate
_HNSW_LINKS = 32
_BLOCK = 4096  # rows


def normalised(features: Features) -> Features:
    """Return the rows (N, D) scaled to length 1; a row of zeros stays unchanged."""
    starts = range(0, max(1, len(features)), _BLOCK)  # a norm takes twice the memory of its rows
    norms = np.concatenate([np.linalg.norm(features[s : s + _BLOCK], axis=1) for s in starts])
    lengths = np.maximum(norms[:, None], np.finfo(np.float32).tiny)
    return np.ascontiguousarray(features / lengths, np.float32)


def build_index(features: Features) -> faiss.Index:
    """Return an index of the normalised rows; ids are row numbers."""
    width = features.shape[1]
    vectors: faiss.Index
    if len(features) <= EXACT_UP_TO:
        vectors = faiss.IndexFlatIP(width)
    else:
        vectors = faiss.IndexHNSWFlat(width, _HNSW_LINKS, faiss.METRIC_INNER_PRODUCT)
    index = faiss.IndexIDMap2(vectors)
    index.add_with_ids(normalised(features), np.arange(len(features), dtype=np.int64))
    return index


def write_index(index: faiss.Index, path: Path) -> None:
    """Write an index file."""
    faiss.write_index(index, str(path))


def read_index(source: Path | BinaryIO, *, width: int | None = None) -> faiss.Index:
    """Return the index in a file.

    Args:
        source: The file, or an open one.
        width: Expected dimension of its vectors; None accepts any.

    Raises:
        GateError: If the file is not an index, or its vectors do not have length `width`.
    """
    name = Path(source.name).name
    try:
        if isinstance(source, Path):
            index = faiss.read_index(str(source))
        else:
            reader = faiss.PyCallbackIOReader(source.read)  # type: ignore[attr-defined]  # no stub
            index = faiss.read_index(reader)
    except (MemoryError, RuntimeError):
        raise GateError(f"{name}: is not a faiss index") from None
    if width is not None and index.d != width:
        raise GateError(f"{name}: vectors have {index.d} dimensions, the model has {width}")
    return index


def nearest(index: faiss.Index, features: Features, count: int) -> tuple[Features, Ids]:
    """Return distances and ids of the `count` nearest vectors, each (N, count), nearest first.

    There are fewer columns where the index holds, or an approximate one finds, fewer.

    Raises:
        ValueError: If a feature is not finite, or `features` is not (N, D) with the index's D.
    """
    if features.ndim != 2 or features.shape[1] != index.d:
        raise ValueError(f"features are {features.shape}; expected (N, {index.d})")
    if not np.isfinite(features).all():
        raise ValueError("features are not finite; expected finite numbers")
    cosines, ids = index.search(normalised(features), min(count, index.ntotal))
    found = (ids >= 0).all(axis=0)  # an approximate index may find fewer; faiss pads with id -1
    return np.clip(1 - cosines[:, found], 0, 2).astype(np.float32), ids[:, found].astype(np.int64)
