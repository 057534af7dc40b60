"""Features of the frozen backbone: computed once with ONNX Runtime and cached by content.

The cache is one SQLite file per backbone and preprocessing: two runs may write at the same time,
and a killed run loses only its unfinished batches.
"""

import hashlib
import sqlite3
import tempfile
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from scda.adapt.data.scan import Rejected
from scda.models.cpus import usable_cpus
from scda.models.errors import DataError, ImageError, UsageError
from scda.models.images import decode, open_image, read_bytes
from scda.models.index import normalised
from scda.models.limits import LIMITS, ImageLimits
from scda.models.networks.backbones import Backbone
from scda.models.networks.export import export_onnx
from scda.models.networks.network import PixelBackbone
from scda.models.preprocess import Pixels
from scda.models.session import Session

BATCH = 32  # images; always full, so that features do not depend on the batch size
_LOCK_TIMEOUT_SECONDS = 120


@dataclass(frozen=True)
class Extracted:
    """The usable images in the order of `paths`, and the reasons why others are unusable."""

    paths: list[Path]
    features: NDArray[np.float32]  # (N, D_backbone)
    digests: list[str]  # SHA-256 of each file's bytes
    rejected: list[Rejected]


class FeatureCache:
    """Cached feature vectors by the SHA-256 of the image file."""

    def __init__(self, folder: Path, backbone: Backbone) -> None:
        """Open or create the file for this backbone and its preprocessing.

        Raises:
            UsageError: If the folder cannot be written or the file is damaged.
        """
        self.path = folder / f"{backbone.id}-{backbone.preprocessing.id}.sqlite"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._db = sqlite3.connect(self.path, timeout=_LOCK_TIMEOUT_SECONDS)
            self._db.execute(
                "CREATE TABLE IF NOT EXISTS features (digest TEXT PRIMARY KEY, vector BLOB)"
            )
        except (OSError, sqlite3.Error) as error:
            raise _unusable(self.path, error) from None

    def digests(self) -> set[str]:
        """Return the digests of all images in the cache."""
        return {row[0] for row in self._db.execute("SELECT digest FROM features")}

    def add(self, digests: Sequence[str], features: NDArray[np.float32]) -> None:
        """Store features (N, D); features that are cached already stay as they are."""
        rows = [(digest, row.tobytes()) for digest, row in zip(digests, features, strict=True)]
        with self._db:
            self._db.executemany("INSERT OR IGNORE INTO features VALUES (?, ?)", rows)

    def get(self, digest: str) -> NDArray[np.float32]:
        """Return the (D,) features of a digest in the cache."""
        query = "SELECT vector FROM features WHERE digest = ?"
        (vector,) = self._db.execute(query, (digest,)).fetchone()
        return np.frombuffer(vector, np.float32)

    def close(self) -> None:
        """Close the file."""
        self._db.close()


def check_cache(folder: Path) -> None:
    """Create the folder of the cache and check that it can be written, before any work is done.

    Raises:
        UsageError: If it cannot.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        raise _unusable(folder, error) from None


def _unusable(path: Path, error: Exception) -> UsageError:
    return UsageError(
        f"{path}: cannot use this feature cache: {error}; choose another folder with --cache"
    )


def extract(
    paths: Sequence[Path],
    backbone: Backbone,
    *,
    cache_folder: Path,
    workers: int = 0,
    provider: str = "cpu",
    gpu: int = 0,
    lanes: int = 0,
    limits: ImageLimits = LIMITS,
    on_progress: Callable[[int], None] = lambda done: None,
) -> Extracted:
    """Return the backbone's features of every usable image.

    Several backbones pass over the images one after the other; each has a cache of its own.

    Args:
        paths: Paths of image files.
        backbone: Frozen backbone, on the CPU.
        cache_folder: Folder that keeps features between runs.
        workers: Number of decoding threads; 0 uses all available CPUs.
        provider: Device of ONNX Runtime: `cpu`, or `auto` for a GPU if one is available.
        gpu: Index of the GPU.
        lanes: Number of batches in parallel on a CPU, one thread each; 0 uses all available CPUs.
        limits: The largest image that is read.
        on_progress: Called with the number of files done, summed over all passes.

    Raises:
        UsageError: If the cache cannot be read or written.
        DataError: If a file changes between two passes.
    """
    if backbone.parts:
        read = partial(extract, paths, cache_folder=cache_folder, workers=workers)
        read = partial(read, provider=provider, gpu=gpu, lanes=lanes, limits=limits)
        return _side_by_side(
            [
                read(part, on_progress=_continued(on_progress, number * len(paths)))
                for number, part in enumerate(backbone.parts)
            ]
        )
    cache = FeatureCache(cache_folder, backbone)
    lanes = lanes or usable_cpus()
    load = partial(Session, provider=provider, gpu=gpu, threads=1)
    try:
        with ThreadPoolExecutor(lanes) as pool:
            network = _Network(backbone, load, cache, pool, lanes, limits)
            return _extract(paths, network, workers or usable_cpus(), on_progress)
    except sqlite3.Error as error:
        raise _unusable(cache.path, error) from None
    finally:
        cache.close()


def _continued(on_progress: Callable[[int], None], before: int) -> Callable[[int], None]:
    return lambda done: on_progress(before + done)


def _side_by_side(passes: Sequence[Extracted]) -> Extracted:
    """Return the features of several backbones, each of length 1, in one row per image."""
    first, *others = passes
    seen = set(zip(first.paths, first.digests, strict=True))
    for other in others:
        if changed := seen ^ set(zip(other.paths, other.digests, strict=True)):
            path = min(path for path, _ in changed)
            raise DataError(f"{path}: changed while its features were computed; start again")
    features = np.hstack([normalised(found.features) for found in passes])
    return replace(first, features=features)


def _extract(
    paths: Sequence[Path], network: "_Network", workers: int, on_progress: Callable[[int], None]
) -> Extracted:
    cache, backbone = network.cache, network.backbone
    found: dict[Path, str] = {}
    rejected: list[Rejected] = []
    try:
        images = _read_all(paths, network, cache.digests(), workers)
        for done, (path, image) in enumerate(images, 1):
            if isinstance(image, Rejected):
                rejected.append(image)
            else:
                found[path] = image.digest
                network.add(image)
            on_progress(done)
        network.send()
    finally:
        network.keep()  # a stopped run keeps the computed features
    rows = [cache.get(digest) for digest in found.values()]
    features = np.stack(rows) if rows else np.empty((0, backbone.width), np.float32)
    return Extracted(list(found), features, list(found.values()), rejected)


@dataclass(frozen=True)
class _Image:
    digest: str
    pixels: Pixels | None  # None if its features are cached


@dataclass
class _Network:
    """The backbone in ONNX Runtime, exported when the first image is not in the cache.

    On a CPU several batches run in parallel with one thread each, because threads that share a
    batch wait for each other.
    """

    backbone: Backbone
    load: Callable[[Path], Session]
    cache: FeatureCache
    pool: ThreadPoolExecutor
    lanes: int
    limits: ImageLimits
    _session: Session | None = None
    _batch: dict[str, Pixels] = field(default_factory=dict)  # by digest
    _under_way: deque[tuple[list[str], Future[NDArray[np.float32]]]] = field(default_factory=deque)

    def add(self, image: _Image) -> None:
        """Add an image to the batch if the cache lacks it; a full batch is submitted."""
        if image.pixels is None:
            return
        self._batch[image.digest] = image.pixels
        if len(self._batch) == BATCH:
            self.send()

    def send(self) -> None:
        """Submit the batch, full or not, and return when there is room for another."""
        if not self._batch:
            return
        session = self._session = self._session or _open(self.backbone, self.load)
        sent = self.pool.submit(_features, session, list(self._batch.values()))
        self._under_way.append((list(self._batch), sent))
        self._batch = {}
        self.keep(min(self.lanes, session.at_once))

    def keep(self, most: int = 0) -> None:
        """Store results in the cache until at most `most` batches are running."""
        while len(self._under_way) > most:
            digests, features = self._under_way.popleft()
            self.cache.add(digests, features.result())


def _features(session: Session, pixels: list[Pixels]) -> NDArray[np.float32]:
    padding = [pixels[-1]] * (BATCH - len(pixels))
    (features,) = session.run(np.stack(pixels + padding))
    return features[: len(pixels)]


def _open(backbone: Backbone, load: Callable[[Path], Session]) -> Session:
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder) / "backbone.onnx"
        shape = backbone.preprocessing.shape
        export_onnx(PixelBackbone(backbone), model, shape=shape, outputs=["features"])
        return load(model)


def _read_all(
    paths: Sequence[Path], network: _Network, seen: set[str], workers: int
) -> Iterator[tuple[Path, _Image | Rejected]]:
    """Yield every file in order; a few batches at most are read ahead."""
    remaining = iter(paths)
    with ThreadPoolExecutor(workers) as pool:

        def submit(path: Path) -> tuple[Path, Future[_Image | Rejected]]:
            return path, pool.submit(_read, path, network, seen)

        ahead = [submit(path) for path in islice(remaining, (1 + network.lanes) * BATCH)]
        while ahead:
            path, image = ahead.pop(0)
            ahead += [submit(following) for following in islice(remaining, 1)]
            yield path, image.result()


def _read(path: Path, network: _Network, seen: set[str]) -> _Image | Rejected:
    limits, apply = network.limits, network.backbone.preprocessing.apply
    try:
        data = read_bytes(path, max_bytes=limits.max_bytes)
        digest = hashlib.sha256(data).hexdigest()
        # What is cached may have been read under other limits.
        image = open_image(data, max_pixels=limits.max_pixels)
        pixels = None if digest in seen else apply(decode(image, max_pixels=limits.max_pixels))
    except ImageError as error:
        return Rejected(path, error.code, str(error))
    return _Image(digest, pixels)
