"""A training job: its folders and configuration, and checks that take no time."""

from dataclasses import dataclass
from pathlib import Path

from scda.adapt.config import TrainConfig
from scda.adapt.data.scan import require_folder
from scda.models.bundle import bundle_folder
from scda.models.errors import UsageError
from scda.models.excluded import NOTHING, Excluded
from scda.models.files import real_path
from scda.models.limits import LIMITS, ImageLimits
from scda.models.networks.backbone_names import check_backbone
from scda.models.places import check_outside


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
    excluded: Excluded = NOTHING  # files that are left out


def check_job(job: Job) -> None:
    """Check the folders and the backbone of a job without reading any image.

    Raises:
        UsageError: If an input is not a folder, the run or the cache would be inside one, the run
            would replace the earlier model, or there is no such backbone.
    """
    require_folder(job.source, "source")
    require_folder(job.target, "target")
    for place in (job.out, job.cache):
        check_outside(place, [job.target], [job.source])
    _check_after(job)
    check_backbone(job.config.backbone, Path(job.config.weights) if job.config.weights else None)


def _check_after(job: Job) -> None:
    """Check that the earlier model is one, and that the run does not take its place."""
    if not job.config.after:
        return
    bundle = real_path(bundle_folder(Path(job.config.after)))
    if bundle.is_relative_to(real_path(job.out)):
        raise UsageError(
            f"{job.out}: holds the earlier model, which is read until the end; "
            "expected another folder for --out"
        )
