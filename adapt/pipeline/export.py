"""Export of a run's model in another precision: its images, and the new bundle."""

from dataclasses import dataclass
from pathlib import Path

from scda.adapt.config import TrainConfig
from scda.adapt.data.dataset import Data
from scda.adapt.data.image_files import Images
from scda.adapt.data.scan import scan_source, scan_target
from scda.adapt.export.int8 import CALIBRATION_IMAGES, MIN_AGREEMENT, export_int8
from scda.adapt.runs.folder import RunFolder
from scda.adapt.runs.images_table import read_images
from scda.adapt.runtime.progress import Reporter
from scda.models.bundle import MANIFEST, Manifest, bundle_folder, file_sha256, read_manifest
from scda.models.errors import UsageError
from scda.models.limits import ImageLimits
from scda.models.places import check_outside, training_folder


@dataclass(frozen=True, kw_only=True)
class Export:
    """What is exported, and how far the new model may differ."""

    run: Path  # run, or bundle
    out: Path  # folder of the new bundle
    target: Path | None = None  # folder of target images; None takes that of the training
    min_agreement: float = MIN_AGREEMENT
    calibration_images: int = CALIBRATION_IMAGES


def export(job: Export, reporter: Reporter) -> Manifest:
    """Write the int8 version of a run's bundle.

    Args:
        job: The run, and the new bundle.
        reporter: Reporter of progress.

    Raises:
        UsageError: If a path is wrong, or the bundle is int8 already.
        DataError: If the target has no image that can be read.
        GateError: If the bundle is damaged, or too few target images keep their class.
    """
    bundle = bundle_folder(job.run)
    if job.out.exists():
        raise UsageError(f"{job.out}: exists; expected the name of a new folder for --out")
    manifest = read_manifest(bundle, checked=False)
    folders = {name: training_folder(manifest.run, name) for name in ("source", "target")}
    if job.target:
        folders["target"] = [job.target]
    check_outside(job.out, folders["target"], folders["source"])
    limits = ImageLimits.of_run(manifest.run)
    target = _target(bundle, folders["target"], limits, given=job.target is not None)
    source = _source(folders["source"], limits)
    reporter.begin("answering target images in both precisions", len(target.paths))
    return export_int8(
        bundle,
        job.out,
        source=source,
        target=target,
        min_agreement=job.min_agreement,
        calibration_images=job.calibration_images,
        on_progress=reporter.done,
    )


def export_beside(run: RunFolder, config: TrainConfig, data: Data, reporter: Reporter) -> None:
    """Write the int8 version of a finished run beside its bundle, if its configuration asks so.

    Raises:
        As `export`.
    """
    if config.precision_export != "int8" or (run.int8_bundle / MANIFEST).is_file():
        return
    reporter.begin("answering target images in both precisions", len(data.target_images.paths))
    manifest = export_int8(
        run.bundle,
        run.int8_bundle,
        source=data.source_images,
        target=data.target_images,
        on_progress=reporter.done,
    )
    assert manifest.quantisation is not None
    reporter.say(manifest.quantisation.sentence)


def _target(bundle: Path, folders: list[Path], limits: ImageLimits, *, given: bool) -> Images:
    """Return the images that the run was trained on; without its table, those of the folder."""
    if not folders or not folders[0].is_dir():
        where = folders[0] if folders else "the target"
        raise UsageError(f"{where}: no such folder on this machine; pass --target DIR")
    recorded = read_images(RunFolder(bundle.parent).images).target
    if recorded and not given:
        paths = [folders[0] / name for name in recorded]
        return Images(folders[0], paths, list(recorded.values()), limits=limits)
    found = scan_target(folders[0]).paths
    return Images(folders[0], found, [_digest(path) for path in found], limits=limits)


def _digest(path: Path) -> str:
    try:
        return file_sha256(path)
    except OSError:  # the reader of images tells of it
        return ""


def _source(folders: list[Path], limits: ImageLimits) -> Images:
    """Return the images of the source; none if it is not on this machine."""
    if not folders or not folders[0].is_dir():
        return Images(Path(), (), limits=limits)
    classes = scan_source(folders[0]).classes
    return Images(folders[0], [one for paths in classes.values() for one in paths], limits=limits)
