"""The data of a job: features of the source and target images, and the unusable files."""

import dataclasses
import hashlib
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from scda.adapt.config import TrainConfig
from scda.adapt.data.copies import Hashed, copy_hints
from scda.adapt.data.feature_cache import cached_features
from scda.adapt.data.features import Extracted, extract
from scda.adapt.data.image_files import Images
from scda.adapt.data.job import Job, check_job
from scda.adapt.data.recorded import Lookup, Recorded, restore_lost
from scda.adapt.data.scan import (
    Rejected,
    SourceFiles,
    TargetFiles,
    read_headers,
    scan_source,
    scan_target,
)
from scda.adapt.data.shared import Shared, shared_images
from scda.adapt.runtime import distributed
from scda.adapt.runtime.device import select_device
from scda.adapt.runtime.progress import Reporter
from scda.models.cpus import num_workers
from scda.models.errors import DataError
from scda.models.files import printable
from scda.models.networks.backbones import Backbone, load_backbone
from scda.models.networks.weights import Notify

NOTHING = Recorded()
# Folders that `label --sort-into` makes beside those of named classes.
_OUR_NAMES = re.compile(r"unknown|review|(known|discovered)-\d{3,}")


@dataclass(frozen=True)
class Labelled:
    """Backbone features of labelled images."""

    features: Tensor  # (N, D_backbone)
    labels: Tensor  # (N,)

    def only(self, rows: Tensor) -> "Labelled":
        """Return some of the images, by their rows."""
        return Labelled(self.features[rows], self.labels[rows])


@dataclass(frozen=True)
class Data:
    """The features of both domains, and the unusable files."""

    source: Labelled
    target: torch.Tensor
    class_names: list[str]
    source_images: Images
    target_images: Images
    rejected: list[Rejected]
    fingerprint: dict[str, Any]

    @cached_property
    def shared(self) -> Shared | None:
        """The images that both domains hold; None if there are none."""
        labels = self.source.labels.numpy()
        return shared_images(self.source_images.digests, labels, self.target_images.digests)


def plan(
    job: Job, more: Callable[[Backbone, list[str]], dict[str, str]] = lambda backbone, digests: {}
) -> dict[str, Any]:
    """Return the counts, configuration and warnings of a run, without decoding any image.

    Args:
        job: Folders and configuration.
        more: Returns further lines, of the backbone and the digests of all target images.

    Raises:
        UsageError: If a path or an option is wrong.
        DataError: If the images cannot be used for this.
    """
    check_job(job)
    source = scan_source(job.source, recursive=job.recursive, excluded=job.excluded)
    target = scan_target(job.target, recursive=job.recursive, excluded=job.excluded)
    backbone = job_backbone(job.config)
    files = [path for paths in source.classes.values() for path in paths]
    of_source, in_source = read_headers(files, job.limits)
    of_target, in_target = read_headers(target.paths, job.limits)
    rejected, labels = [*in_source, *in_target], _labels(source, list(of_source))
    counts = Counter(labels)
    _check_counts(job, sorted(counts), len(of_target), rejected)
    return {
        **{f"source {name}": f"{counts[name]} images" for name in source.classes},
        "target": f"{len(of_target)} images",
        "rejected": f"{len(rejected)} files",
        **dataclasses.asdict(job.config),
        **more(backbone, list(of_target.values())),
        "warnings": [
            *job.excluded.hints([job.source, job.target]),
            *copy_hints(
                Hashed(list(of_source), list(of_source.values()), labels),
                Hashed(list(of_target), list(of_target.values())),
            ),
        ],
    }


def job_backbone(config: TrainConfig, say: Notify = lambda line: None) -> Backbone:
    """Return the backbone that a config names.

    Args:
        config: Configuration of the job.
        say: Called with a line about each download.

    Raises:
        UsageError: If the backbone, its weights or the device is not available.
    """
    select_device(config)
    weights = Path(config.weights) if config.weights else None
    return load_backbone(config.backbone, weights=weights, image_size=config.image_size, notify=say)


def read_data(
    job: Job,
    source: SourceFiles,
    target: TargetFiles,
    backbone: Backbone,
    reporter: Reporter,
    recorded: Recorded = NOTHING,
) -> Data:
    """Return the features of both domains; a class without a usable image is left out.

    Args:
        job: Folders and configuration.
        source: Files of the source.
        target: Files of the target.
        backbone: Frozen backbone.
        reporter: Reporter of progress and warnings.
        recorded: Images that a resumed run began with. Those that are lost meanwhile have their
            features from the cache.

    Raises:
        DataError: If the remaining images cannot be trained on.
        UsageError: If the feature cache cannot be used.
    """
    _warn_of_names(source.classes, reporter)
    files = [path for paths in source.classes.values() for path in paths]
    of_source = _extract(files, backbone, job, reporter, "source images")
    of_target = _extract(target.paths, backbone, job, reporter, "target images")
    cached = _lookup(job, backbone)
    of_source = restore_lost(of_source, source.root, recorded.source, cached)
    of_target = restore_lost(of_target, target.root, recorded.target, cached)
    rejected = of_source.rejected + of_target.rejected
    for bad in rejected:
        reporter.detail(f"rejected {bad.path}: {bad.message}")
    labels = _labels(source, of_source.paths)
    class_names = sorted(set(labels))
    for name in source.classes.keys() - set(class_names):
        reporter.warn(f"class folder {name} has no usable image and is left out")
    _check_counts(job, class_names, len(of_target.paths), rejected)
    copies = copy_hints(
        Hashed(of_source.paths, of_source.digests, labels),
        Hashed(of_target.paths, of_target.digests),
    )
    for hint in (*job.excluded.hints([job.source, job.target]), *copies):
        reporter.warn(hint)
    numbers = torch.tensor([class_names.index(label) for label in labels])
    reporter.say(
        f"source: {len(labels)} images of {len(class_names)} classes; "
        f"target: {len(of_target.paths)} images; skipped: {_skipped(source, target)}"
    )
    return Data(
        Labelled(torch.from_numpy(of_source.features), numbers),
        torch.from_numpy(of_target.features),
        class_names,
        _images(source.root, of_source, job),
        _images(target.root, of_target, job),
        rejected,
        {
            "classes": class_names,
            "backbone": backbone.id,
            "preprocessing": backbone.preprocessing.id,
            "source": _digest([f"{d} {n}" for d, n in zip(of_source.digests, labels, strict=True)]),
            "target": _digest(of_target.digests),
        },
    )


def with_features(data: Data, source: Labelled, target: Tensor, backbone: Backbone) -> Data:
    """Return the data with the features of another backbone for the same images."""
    fingerprint = {**data.fingerprint, "backbone of the target": backbone.id}
    return dataclasses.replace(data, source=source, target=target, fingerprint=fingerprint)


def features_again(
    images: Images, backbone: Backbone, job: Job, reporter: Reporter, what: str
) -> torch.Tensor | None:
    """Return the features (N, D_backbone) of images that were read before, by another backbone.

    Args:
        images: Files and the digests of their contents.
        backbone: Frozen backbone.
        job: Folders and configuration.
        reporter: Reporter of progress.
        what: Name of this piece of work.

    Returns:
        None if an image is lost meanwhile, and its features are not in the cache.
    """
    found = _extract(images.paths, backbone, job, reporter, what)
    recorded = dict(zip(images.names(), images.digests, strict=True))
    found = restore_lost(found, images.root, recorded, _lookup(job, backbone))
    return torch.from_numpy(found.features) if found.digests == list(images.digests) else None


def _warn_of_names(names: Iterable[str], reporter: Reporter) -> None:
    ours = [name for name in names if _OUR_NAMES.fullmatch(name)]
    if ours:
        reporter.warn(
            f"class folders have names that scda gives: {', '.join(ours)}; they are learned as "
            "classes of these names; rename or remove those that hold no class"
        )


def _skipped(source: SourceFiles, target: TargetFiles) -> str:
    both = source.skipped + target.skipped
    counts = {
        "hidden files and folders": both.hidden,
        "linked folders": both.linked_folders,
        "files beside the class folders": source.loose,
    }
    return ", ".join(f"{count} {what}" for what, count in counts.items() if count) or "nothing"


def _images(root: Path, found: Extracted, job: Job) -> Images:
    return Images(root, found.paths, found.digests, found.stamps, job.limits)


def _labels(source: SourceFiles, paths: Sequence[Path]) -> list[str]:
    """Return the class of each file; that of a lost file is the class of its folder."""

    def folder(path: Path) -> str:
        return path.relative_to(source.root).parts[0]

    class_of = {folder(path): name for name, of in source.classes.items() for path in of}
    return [class_of.get(folder(path), folder(path)) for path in paths]


def _lookup(job: Job, backbone: Backbone) -> Lookup:
    """Return the function that finds features in the cache of the main process."""
    return lambda digests: distributed.broadcast_from_main(
        lambda: cached_features(digests, backbone, job.cache)
    )


def _extract(
    paths: Sequence[Path], backbone: Backbone, job: Job, reporter: Reporter, what: str
) -> Extracted:
    own = distributed.shard(paths)
    reporter.begin(what, len(own) * backbone.passes)
    found = extract(
        own,
        backbone,
        cache_folder=job.cache,
        workers=num_workers(job.config.workers, len(own)) or distributed.cpus(),
        provider="cpu" if job.config.device == "cpu" else "auto",
        gpu=distributed.local_rank(),
        lanes=distributed.cpus(),
        limits=job.limits,
        on_progress=reporter.done,
    )
    return _put_together(found)


def _put_together(own: Extracted) -> Extracted:
    """Return the extracted features of all processes in the order of the files."""
    others = distributed.all_gather_object(dataclasses.replace(own, features=own.features[:0]))
    return Extracted(
        [path for found in others for path in found.paths],
        distributed.all_gather_rows(torch.from_numpy(own.features)).numpy(),
        [digest for found in others for digest in found.digests],
        [bad for found in others for bad in found.rejected],
        [stamp for found in others for stamp in found.stamps],
    )


def _check_counts(
    job: Job, class_names: list[str], num_target: int, rejected: Sequence[Rejected]
) -> None:
    """Check that there is enough to train on.

    Raises:
        DataError: If there is not; it names the first unusable file, as no run will list them.
    """
    if len(class_names) < 2:
        found = f"found images of one class, {class_names[0]}; expected two" if class_names else ""
        message = f"{job.source}: {found or 'no class folder holds a usable image'}"
    elif num_target < 2:
        message = f"{job.target}: {num_target} readable target images; expected at least 2"
    else:
        return
    if rejected:
        name, reason = printable(str(rejected[0].path)), rejected[0].message
        message += f"; {len(rejected)} files are not usable, the first of them {name}: {reason}"
    raise DataError(message)


def _digest(lines: Sequence[str]) -> str:
    text = "\n".join(lines)
    digest = hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:16]
    return f"{len(lines)} images with digest {digest}"
