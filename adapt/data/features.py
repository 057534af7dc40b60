"""Features of the frozen backbone: computed once with ONNX Runtime and cached by content."""

import hashlib
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from scda.adapt.data.backbone_file import backbone_file
from scda.adapt.data.feature_cache import FeatureCache, use_cache
from scda.adapt.data.image_files import Stamp
from scda.adapt.data.known_files import FileState, KnownFile
from scda.adapt.data.scan import Rejected
from scda.models.cpus import usable_cpus
from scda.models.decoding.content import read_bytes
from scda.models.errors import ImageError
from scda.models.images import check_image, read_pixels
from scda.models.index import normalised
from scda.models.limits import LIMITS, ImageLimits
from scda.models.networks.backbones import Backbone
from scda.models.preprocess import Pixels
from scda.models.session import Session

_TOGETHER = 8  # files that a thread reads at a time, at most: to hand over each takes as long
BATCH = 32  # images; always full, so that features do not depend on the batch size
CHANGED = "the file vanished or changed while its features were computed"


@dataclass(frozen=True)
class Extracted:
    """The usable images in the order of `paths`, and the reasons why others are unusable."""

    paths: list[Path]
    features: NDArray[np.float32]  # (N, D_backbone)
    digests: list[str]  # SHA-256 of each file's bytes
    rejected: list[Rejected]
    stamps: list[Stamp | None] = field(default_factory=list)  # of each file


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
    lanes = lanes or usable_cpus()
    load = partial(Session, provider=provider, gpu=gpu, threads=1)

    def compute(cache: FeatureCache) -> Extracted:
        with ThreadPoolExecutor(lanes) as pool:
            network = _Network(backbone, load, cache, pool, lanes, limits)
            return _extract(paths, network, workers or usable_cpus(), on_progress)

    return use_cache(cache_folder, backbone, compute)


def _continued(on_progress: Callable[[int], None], before: int) -> Callable[[int], None]:
    return lambda done: on_progress(before + done)


def _side_by_side(passes: Sequence[Extracted]) -> Extracted:
    """Return the features of several backbones, each of length 1, in one row per image.

    A file that changed or vanished between two passes is unusable.
    """
    rows = [_rows(found) for found in passes]
    first = passes[0]
    kept = [image for image in rows[0] if all(image in others for others in rows)]
    features = [
        found.features[[of[i] for i in kept]] for found, of in zip(passes, rows, strict=True)
    ]
    reasons = {bad.path: bad for found in passes for bad in found.rejected}
    lost = {path: Rejected(path, "unreadable", CHANGED) for path, _ in rows[0].keys() - set(kept)}
    return Extracted(
        [path for path, _ in kept],
        np.hstack([normalised(part) if kept else part for part in features]),
        [digest for _, digest in kept],
        list((lost | reasons).values()),
        [first.stamps[rows[0][image]] for image in kept],
    )


def _rows(found: Extracted) -> dict[tuple[Path, str], int]:
    """Return the row of each image, by path and digest."""
    images = zip(found.paths, found.digests, strict=True)
    return {image: row for row, image in enumerate(images)}


def _extract(
    paths: Sequence[Path], network: "_Network", workers: int, on_progress: Callable[[int], None]
) -> Extracted:
    cache = network.cache
    found: dict[Path, str] = {}
    stamps: list[Stamp | None] = []
    rejected: list[Rejected] = []
    try:
        images = _read_all(paths, network, cache.digests(), workers)
        for done, (path, image) in enumerate(images, 1):
            if isinstance(image, Rejected):
                rejected.append(image)
            else:
                found[path] = image.digest
                stamps.append(image.stamp)
                network.add(image)
                if image.new is not None:
                    cache.files.add(path, image.new, network.limits)
            on_progress(done)
        network.send()
    finally:
        network.keep()  # a stopped run keeps the computed features
        cache.files.save()
    digests = list(found.values())
    return Extracted(list(found), cache.rows(digests), digests, rejected, stamps)


@dataclass(frozen=True)
class _Image:
    digest: str
    stamp: Stamp | None
    pixels: Pixels | None = None  # None if its features are cached
    new: KnownFile | None = None  # to remember; None if it is known, or has just changed


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
        session = self._session = self._session or _open(
            self.backbone, self.load, self.cache.path.parent
        )
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


def _open(backbone: Backbone, load: Callable[[Path], Session], cache_folder: Path) -> Session:
    return load(backbone_file(backbone, cache_folder))


def _read_all(
    paths: Sequence[Path], network: _Network, seen: set[str], workers: int
) -> Iterator[tuple[Path, _Image | Rejected]]:
    """Yield every file in order; a few batches at most are read ahead."""
    together = max(1, min(_TOGETHER, len(paths) // workers))  # of few, each thread has some
    remaining = (paths[start : start + together] for start in range(0, len(paths), together))

    def read(
        some: Sequence[Path], known: Sequence[KnownFile | None]
    ) -> list[tuple[Path, _Image | Rejected]]:
        pairs = zip(some, known, strict=True)
        return [(path, _read(path, file, network, seen)) for path, file in pairs]

    def submit(some: Sequence[Path]) -> Future[list[tuple[Path, _Image | Rejected]]]:
        files = network.cache.files.find(some, network.limits)
        return pool.submit(read, some, files)

    with ThreadPoolExecutor(workers) as pool:
        first = islice(remaining, (1 + network.lanes) * BATCH // together)
        ahead = deque(map(submit, first))
        while ahead:
            images = ahead.popleft()
            ahead += map(submit, islice(remaining, 1))
            yield from images.result()


def _read(
    path: Path, known: KnownFile | None, network: _Network, seen: set[str]
) -> _Image | Rejected:
    limits, pixels = network.limits, None
    state = FileState.of(path)  # before its bytes: a change in between is noticed
    stamp = state.stamp if state else None
    if known and known.state == state and known.digest in seen:
        return _Image(known.digest, stamp)
    try:
        data = read_bytes(path, max_bytes=limits.max_bytes)
        digest = hashlib.sha256(data).hexdigest()
        if digest in seen:
            check_image(data, limits)  # it may have been read under others
        else:
            pixels = read_pixels(data, network.backbone.preprocessing, limits)
    except ImageError as error:
        return Rejected(path, error.code, str(error))
    new = KnownFile(state, digest) if state and state.settled else None
    return _Image(digest, stamp, pixels, new)
