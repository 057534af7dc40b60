"""A backbone with the statistics of one domain, from a sample of its images."""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor
from torch.nn.functional import normalize

from scda.adapt.runtime.threads import one_thread
from scda.models.decoding.content import read_bytes
from scda.models.errors import GateError, ImageError
from scda.models.files import write_atomically
from scda.models.images import read_pixels
from scda.models.limits import LIMITS, ImageLimits
from scda.models.networks.backbones import Backbone, side_by_side
from scda.models.networks.statistics import (
    Statistics,
    batch_features,
    batch_statistics,
    has_statistics,
    with_statistics,
)
from scda.models.preprocess import Pixels

SAMPLE = 512  # images; fewer leave the variance of rarely active channels uncertain
_BATCH = 64
_LEAST = 8  # images; fewer say little about a domain

T = TypeVar("T")
DomainStatistics = Mapping[str, Statistics]  # of each backbone by its id


def evenly(values: Sequence[T], count: int) -> list[T]:
    """Return `count` of the values, evenly spaced in their order; all if there are fewer."""
    count = min(count, len(values))
    return [values[number * len(values) // count] for number in range(count)]


def domain_statistics(
    paths: Sequence[Path],
    backbone: Backbone,
    *,
    cache_folder: Path,
    limits: ImageLimits = LIMITS,
    on_progress: Callable[[int], None] = lambda done: None,
) -> DomainStatistics | None:
    """Return the statistics of a sample of the images; None if there are too few.

    They depend on the content of the images, and not on the number of threads; the folder of the
    feature cache keeps them.

    Args:
        paths: Image files of the domain; those that cannot be read are passed over.
        backbone: Frozen backbone, on the CPU; each of several is taken by itself.
        cache_folder: Folder that keeps them between runs.
        limits: The largest image that is read.
        on_progress: Called with the number of images that a backbone has seen.
    """
    files = [data for path in evenly(paths, SAMPLE) if (data := _bytes(path, limits)) is not None]
    if len(files) < _LEAST:
        return None
    found = {}
    for part in backbone.parts or (backbone,):
        if has_statistics(part):
            compute = partial(_statistics_by_batch, files, part, limits, on_progress)
            found[part.id] = _kept(_cache_path(cache_folder, part, files), compute)
    return found or None


def domain_features(
    paths: Sequence[Path],
    backbone: Backbone,
    *,
    cache_folder: Path,
    limits: ImageLimits = LIMITS,
    on_progress: Callable[[int], None] = lambda done: None,
) -> Tensor | None:
    """Return nearly the features that the domain's own statistics would give, (N, D_backbone).

    Each image is normalised by the statistics of its batch, for which one pass is enough. The
    folder of the feature cache keeps the features. None if there are too few images, or if one of
    them cannot be read.

    Args:
        paths: Image files, a sample of the domain.
        backbone: Frozen backbone, on the CPU; each of several is taken by itself.
        cache_folder: Folder that keeps the features between runs.
        limits: The largest image that is read.
        on_progress: Called with the number of images that a backbone has seen.
    """
    files = [data for path in paths if (data := _bytes(path, limits)) is not None]
    if len(files) < max(_LEAST, len(paths)):
        return None
    found = []
    for part in backbone.parts or (backbone,):
        compute = partial(_features_by_batch, files, part, limits, on_progress)
        path = _cache_path(cache_folder, part, files, "-features")
        found.append(_kept(path, compute)["features"])
    if any(len(features) < len(files) for features in found):
        return None
    return torch.cat([normalize(part) for part in found], dim=1) if backbone.parts else found[0]


def domain_backbone(backbone: Backbone, statistics: DomainStatistics) -> Backbone:
    """Return the backbone with the statistics of a domain, as `domain_statistics` returns them."""
    if backbone.parts:
        return side_by_side([domain_backbone(part, statistics) for part in backbone.parts])
    found = statistics.get(backbone.id)
    return backbone if found is None else with_statistics(backbone, found)


def write_statistics(path: Path, **domains: DomainStatistics) -> None:
    """Write the statistics of each domain to a safetensors file."""
    tensors = {
        f"{domain}/{backbone}/{name}": tensor.clone()  # safetensors refuses shared memory
        for domain, of_domain in domains.items()
        for backbone, statistics in of_domain.items()
        for name, tensor in statistics.items()
    }
    write_atomically(path, save(tensors))


def read_statistics(path: Path) -> dict[str, dict[str, dict[str, Tensor]]]:
    """Return the statistics of each domain; nothing if there is no such file.

    Raises:
        GateError: If it is damaged.
    """
    if not path.is_file():
        return {}
    found: dict[str, dict[str, dict[str, Tensor]]] = {}
    try:
        for key, tensor in load(path.read_bytes()).items():
            domain, backbone, name = key.split("/", 2)
            found.setdefault(domain, {}).setdefault(backbone, {})[name] = tensor
    except (ValueError, SafetensorError) as error:
        raise GateError(f"{path}: damaged: {error}; start again with --overwrite") from None
    return found


def _bytes(path: Path, limits: ImageLimits) -> bytes | None:
    try:
        return read_bytes(path, max_bytes=limits.max_bytes)
    except ImageError:
        return None


def _turns(count: int) -> list[range]:
    """Return the files of each batch: they come by class, so that it takes every n-th one."""
    batches = max(1, count // _BATCH)
    return [range(number, count, batches) for number in range(batches)]


def _batches(
    files: Sequence[bytes],
    backbone: Backbone,
    limits: ImageLimits,
    on_progress: Callable[[int], None],
) -> Iterator[Tensor]:
    """Yield the readable images in batches of which each is a sample of all, as pixels."""
    done = 0
    for turn in _turns(len(files)):
        images = [_pixels(files[number], backbone, limits) for number in turn]
        readable = [pixels for pixels in images if pixels is not None]
        if readable:
            yield torch.from_numpy(np.stack(readable))
        on_progress(done := done + len(turn))


def _statistics_by_batch(
    files: Sequence[bytes],
    backbone: Backbone,
    limits: ImageLimits,
    on_progress: Callable[[int], None],
) -> Mapping[str, Tensor]:
    return batch_statistics(backbone, _batches(files, backbone, limits, on_progress))


def _features_by_batch(
    files: Sequence[bytes],
    backbone: Backbone,
    limits: ImageLimits,
    on_progress: Callable[[int], None],
) -> dict[str, Tensor]:
    """Return the features of the readable images; in the order of the files if all are."""
    features = batch_features(backbone, _batches(files, backbone, limits, on_progress))
    order = [number for turn in _turns(len(files)) for number in turn]
    return {"features": features[np.argsort(order)] if len(features) == len(files) else features}


def _pixels(data: bytes, backbone: Backbone, limits: ImageLimits) -> Pixels | None:
    try:
        return read_pixels(data, backbone.preprocessing, limits)
    except ImageError:
        return None


def _cache_path(folder: Path, backbone: Backbone, files: Sequence[bytes], what: str = "") -> Path:
    digest = hashlib.sha256(b"".join(hashlib.sha256(data).digest() for data in files)).hexdigest()
    name = f"{backbone.id}-{backbone.preprocessing.id}-{digest[:16]}{what}"
    return folder / f"{name}.safetensors"


def _kept(path: Path, compute: Callable[[], Mapping[str, Tensor]]) -> Mapping[str, Tensor]:
    """Return the tensors that the file holds, or else compute them in one thread and write it."""
    try:
        return load(path.read_bytes())
    except (OSError, SafetensorError):  # not there, or damaged: they can be computed once more
        with one_thread():
            tensors = compute()
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, save(dict(tensors)))
        return tensors
