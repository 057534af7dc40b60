"""The data of a job: features of the source and target images, and the unusable files."""

import dataclasses
import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from scda.adapt.config import TrainConfig
from scda.adapt.data.features import Extracted, extract
from scda.adapt.data.image_files import Images
from scda.adapt.data.scan import (
    Rejected,
    SourceFiles,
    TargetFiles,
    scan_source,
    scan_target,
    unreadable,
)
from scda.adapt.runtime import distributed
from scda.adapt.runtime.device import select_device
from scda.adapt.runtime.progress import Reporter
from scda.models.cpus import num_workers
from scda.models.errors import DataError, UsageError
from scda.models.files import real_path
from scda.models.limits import LIMITS, ImageLimits
from scda.models.networks.backbones import Backbone, load_backbone
from scda.models.networks.weights import Notify

# Folders that `label --sort-into` makes beside those of named classes.
_OUR_NAMES = re.compile(r"unknown|review|(known|discovered)-\d{3,}")


@dataclass(frozen=True)
class Labelled:
    """Backbone features of labelled images."""

    features: Tensor  # (N, D_backbone)
    labels: Tensor  # (N,)


@dataclass(frozen=True, kw_only=True)
class Job:
    """The folders and the configuration of a run, and whether it resumes or replaces one."""

    source: Path
    target: Path
    out: Path
    cache: Path  # folder of the feature cache
    config: TrainConfig
    recursive: bool = True
    overwrite: bool = False
    resume: bool = False
    tensorboard: bool = False
    limits: ImageLimits = LIMITS  # the largest image that is read


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


def plan(job: Job) -> dict[str, Any]:
    """Return the counts and configuration of a run, from the headers of the files alone.

    Raises:
        UsageError: If a path or an option is wrong.
        DataError: If the images cannot be used for this.
    """
    check_apart(job)
    source = scan_source(job.source, recursive=job.recursive)
    target = scan_target(job.target, recursive=job.recursive)
    job_backbone(job.config)
    usable = {n: len(p) - len(unreadable(p, job.limits)) for n, p in source.classes.items()}
    of_target = len(target.paths) - len(unreadable(target.paths, job.limits))
    files = len(target.paths) + sum(map(len, source.classes.values()))
    _check_counts(job, [name for name, count in usable.items() if count], of_target)
    return {
        **{f"source {name}": f"{count} images" for name, count in usable.items()},
        "target": f"{of_target} images",
        "rejected": f"{files - of_target - sum(usable.values())} files",
        **dataclasses.asdict(job.config),
    }


def check_apart(job: Job) -> None:
    """Check that neither run nor cache is inside the images, where they would be trained on.

    Raises:
        UsageError: If one of them is.
    """
    for place in (job.out, job.cache):
        for images in (job.source, job.target):
            if real_path(place).is_relative_to(real_path(images)):
                raise UsageError(
                    f"{place}: lies inside {images}; expected a folder outside the images"
                )


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
    job: Job, source: SourceFiles, target: TargetFiles, backbone: Backbone, reporter: Reporter
) -> Data:
    """Return the features of both domains; a class without a usable image is left out.

    Raises:
        DataError: If the remaining images cannot be trained on.
        UsageError: If the feature cache cannot be used.
    """
    _warn_of_names(source.classes, reporter)
    files = [(name, path) for name, paths in source.classes.items() for path in paths]
    of_source = _extract([path for _, path in files], backbone, job, reporter, "source images")
    of_target = _extract(target.paths, backbone, job, reporter, "target images")
    rejected = of_source.rejected + of_target.rejected
    for bad in rejected:
        reporter.detail(f"rejected {bad.path}: {bad.message}")
    if rejected:
        reporter.warn(
            f"{len(rejected)} files are not usable images; rejected.csv in the run lists them"
        )
    class_of = {path: name for name, path in files}
    labels = [class_of[path] for path in of_source.paths]
    class_names = [name for name in source.classes if name in set(labels)]
    for name in source.classes.keys() - set(class_names):
        reporter.warn(f"class folder {name} has no usable image and is left out")
    why = f"; {of_target.rejected[0].message}" if of_target.rejected else ""
    _check_counts(job, class_names, len(of_target.paths), why)
    numbers = torch.tensor([class_names.index(label) for label in labels])
    reporter.say(
        f"source: {len(labels)} images of {len(class_names)} classes; "
        f"target: {len(of_target.paths)} images; skipped: {_skipped(source, target)}"
    )
    return Data(
        Labelled(torch.from_numpy(of_source.features), numbers),
        torch.from_numpy(of_target.features),
        class_names,
        Images(source.root, of_source.paths, limits=job.limits),
        Images(target.root, of_target.paths, limits=job.limits),
        rejected,
        {
            "classes": class_names,
            "backbone": backbone.id,
            "preprocessing": backbone.preprocessing.id,
            "source": _digest([f"{d} {n}" for d, n in zip(of_source.digests, labels, strict=True)]),
            "target": _digest(of_target.digests),
        },
    )


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
    )


def _check_counts(job: Job, class_names: list[str], num_target: int, why: str = "") -> None:
    if not class_names:
        raise DataError(f"{job.source}: no class folder holds a usable image")
    if len(class_names) == 1:
        raise DataError(f"{job.source}: found images of one class, {class_names[0]}; expected two")
    if num_target < 2:
        raise DataError(
            f"{job.target}: {num_target} readable target images; expected at least 2{why}"
        )


def _digest(lines: Sequence[str]) -> str:
    text = "\n".join(lines)
    digest = hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:16]
    return f"{len(lines)} images with digest {digest}"
