"""The cache of backbone features by the content of images.

It is one SQLite file per backbone and preprocessing: two runs may write at the same time, and a
killed run loses only its unfinished batches.
"""

import os
import sqlite3
import tempfile
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from scda.adapt.data.known_files import KnownFiles
from scda.models.errors import UsageError
from scda.models.index import normalised
from scda.models.networks.backbones import Backbone

_LOCK_TIMEOUT_SECONDS = 120
MAPPED_ABOVE_BYTES = 2**30  # of features in memory; 200,000 images of 1,280 numbers
_ADD = (
    "INSERT INTO features VALUES (?, ?) ON CONFLICT (digest) DO UPDATE SET vector = "
    "excluded.vector WHERE length(vector) <> ?"
)

T = TypeVar("T")


class FeatureCache:
    """Cached feature vectors by the SHA-256 of the image file.

    Attributes:
        path: The file of the cache.
        files: The image files that were read, and their SHA-256.
    """

    def __init__(self, folder: Path, backbone: Backbone) -> None:
        """Open or create the file for this backbone and its preprocessing.

        Raises:
            OSError: If the folder cannot be made.
            sqlite3.Error: If the file cannot be used.
        """
        self.path = cache_path(folder, backbone)
        self._num_bytes = backbone.width * np.dtype(np.float32).itemsize
        folder.mkdir(parents=True, exist_ok=True)
        self._db = sqlite3.connect(self.path, timeout=_LOCK_TIMEOUT_SECONDS)
        self._db.execute(
            "CREATE TABLE IF NOT EXISTS features (digest TEXT PRIMARY KEY, vector BLOB)"
        )
        self.files = KnownFiles(self._db)

    def digests(self) -> set[str]:
        """Return the digests of all images in the cache, without those of damaged features."""
        query = "SELECT digest FROM features WHERE length(vector) = ?"
        return {row[0] for row in self._db.execute(query, (self._num_bytes,))}

    def add(self, digests: Sequence[str], features: NDArray[np.float32]) -> None:
        """Store features (N, D); those that are cached already stay, unless they are damaged."""
        rows = [
            (digest, row.tobytes(), self._num_bytes)
            for digest, row in zip(digests, features, strict=True)
        ]
        with self._db:
            self._db.executemany(_ADD, rows)

    def get(self, digest: str) -> NDArray[np.float32]:
        """Return the (D,) features of a digest in the cache."""
        query = "SELECT vector FROM features WHERE digest = ?"
        (vector,) = self._db.execute(query, (digest,)).fetchone()
        return np.frombuffer(vector, np.float32)

    def rows(self, digests: Sequence[str]) -> NDArray[np.float32]:
        """Return the features of digests in the cache, (N, D).

        Those of more than a gigabyte are mapped from a temporary file beside the cache, which takes
        no name and is gone when nothing uses it: the system keeps in memory what fits.
        """
        shape = (len(digests), self._num_bytes // np.dtype(np.float32).itemsize)
        features = np.empty(shape, np.float32) if self._fits(len(digests)) else self._mapped(shape)
        for row, digest in zip(features, digests, strict=True):
            row[:] = self.get(digest)
        return features

    def _fits(self, count: int) -> bool:
        return count * self._num_bytes <= MAPPED_ABOVE_BYTES

    def _mapped(self, shape: tuple[int, int]) -> NDArray[np.float32]:
        with tempfile.TemporaryFile(dir=self.path.parent) as file:
            # A disk that fills up while pages are written would end the process without a word.
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(file.fileno(), 0, shape[0] * self._num_bytes)
            return np.memmap(file, np.float32, "w+", shape=shape)

    def close(self) -> None:
        """Close the file."""
        self._db.close()


def cache_path(folder: Path, backbone: Backbone) -> Path:
    """Return the file of a backbone and its preprocessing in a folder of caches."""
    return folder / f"{backbone.id}-{backbone.preprocessing.id}.sqlite"


def check_cache(folder: Path) -> None:
    """Create the folder of the cache and check that it can be written, before any work is done.

    Raises:
        UsageError: If it cannot.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        raise _unusable(folder, error, "choose") from None


def use_cache(folder: Path, backbone: Backbone, use: Callable[[FeatureCache], T]) -> T:
    """Return what a function makes with the cache.

    A damaged file is replaced by an empty one, and the function is called again: all that the cache
    holds can be computed once more.

    Raises:
        UsageError: If the cache cannot be read or written.
    """
    try:
        return _use(folder, backbone, use)
    except sqlite3.DatabaseError:
        remove_cache(folder, backbone)
        return _use(folder, backbone, use)


def remove_cache(folder: Path, backbone: Backbone) -> None:
    """Remove the file of a backbone, and those that SQLite keeps beside it."""
    path = cache_path(folder, backbone)
    for end in ("", "-journal", "-wal", "-shm"):
        path.with_name(path.name + end).unlink(missing_ok=True)


def cached_features(
    digests: Sequence[str], backbone: Backbone, folder: Path
) -> NDArray[np.float32] | None:
    """Return the features (N, D) of these digests; None if the cache lacks one of them.

    Raises:
        UsageError: If the cache cannot be used.
    """
    if backbone.parts:
        found = [cached_features(digests, part, folder) for part in backbone.parts]
        there = [normalised(features) for features in found if features is not None]
        return np.hstack(there) if len(there) == len(found) else None

    def find(cache: FeatureCache) -> NDArray[np.float32] | None:
        if not set(digests) <= cache.digests():
            return None
        return cache.rows(digests)

    return use_cache(folder, backbone, find)


def _use(folder: Path, backbone: Backbone, use: Callable[[FeatureCache], T]) -> T:
    try:
        with closing(FeatureCache(folder, backbone)) as cache:
            return use(cache)
    except (OSError, sqlite3.Error) as error:
        # That type alone stands for a file that is no database, or a damaged one.
        if type(error) is sqlite3.DatabaseError:
            raise
        raise _unusable(cache_path(folder, backbone), error, "delete the file, or choose") from None


def _unusable(path: Path, error: Exception, advice: str) -> UsageError:
    reason = error.strerror if isinstance(error, OSError) else error
    return UsageError(
        f"{path}: cannot use this feature cache: {reason}; {advice} another folder with --cache"
    )
