"""The training job: adapt to the target folder; write a bundle and a report."""

import dataclasses
import time
from dataclasses import dataclass

import faiss
import torch
from threadpoolctl import threadpool_limits

from scda.adapt.config import TrainConfig
from scda.adapt.data.dataset import Data, Job, check_apart, job_backbone, read_data
from scda.adapt.data.features import check_cache
from scda.adapt.data.scan import SourceFiles, TargetFiles, scan_source, scan_target
from scda.adapt.discovery.diagnostics import empty_classes
from scda.adapt.discovery.findings import statuses
from scda.adapt.discovery.trust.absent import absent_classes
from scda.adapt.export.bundle_writer import make_bundle
from scda.adapt.export.final_model import FinalModel, final_model
from scda.adapt.pipeline.environment import environment
from scda.adapt.pipeline.events import Events, check_tensorboard, open_events
from scda.adapt.pipeline.run_reporter import RunReporter, steps_before
from scda.adapt.report.report import write_report
from scda.adapt.runs.folder import RunFolder, clear, open_run, settle_config
from scda.adapt.runs.tables import write_discovery, write_rejected
from scda.adapt.runs.target_map import make_map, write_map
from scda.adapt.runtime import distributed
from scda.adapt.runtime.device import select_device
from scda.adapt.runtime.progress import Reporter
from scda.adapt.training.algorithm import Adapted, adapt
from scda.adapt.training.finetune import ImageInputs, trained_backbone
from scda.adapt.training.runner import Callbacks
from scda.models.bundle import MANIFEST, Manifest, read_manifest
from scda.models.cpus import num_workers
from scda.models.errors import GateError
from scda.models.networks.backbones import Backbone


@dataclass(frozen=True)
class TrainResult:
    """The result of a training."""

    manifest: Manifest
    rejected: int  # number of files that are not usable images


@dataclass(frozen=True)
class _Run:
    """A run after its images have been read."""

    job: Job
    folder: RunFolder
    data: Data
    backbone: Backbone
    reporter: Reporter
    started: float  # seconds since the epoch


def train(job: Job, reporter: Reporter) -> TrainResult | None:
    """Adapt a classifier of the source folder to the target folder; write a bundle and a report.

    Args:
        job: Folders and configuration.
        reporter: Reporter of progress and warnings.

    Returns:
        The result; None in processes other than rank 0.

    Raises:
        UsageError: If a path or an option is wrong.
        DataError: If the images cannot be used for training.
        GateError: If the exported model deviates from the trained one, or if training diverges;
            then the bundle is that of the last good round, if there was one.
    """
    started, folder = time.time(), RunFolder(job.out)
    distributed.init(select_device(job.config))
    if not distributed.is_main():
        reporter.mute()
    if job.resume and distributed.broadcast_from_main(lambda: _is_finished(folder)):
        return _finished(folder, reporter) if distributed.is_main() else None
    data, backbone = _prepare(job, folder, reporter)
    run = _Run(job, folder, data, backbone, reporter, started)
    adapted = _adapt(run)
    if adapted is None:
        return None
    manifest = _write_results(run, adapted)
    _raise_if_diverged(adapted.failure)
    return TrainResult(manifest, len(data.rejected))


def _prepare(job: Job, folder: RunFolder, reporter: Reporter) -> tuple[Data, Backbone]:
    """Open the run's folder, and read the images."""
    if job.tensorboard:
        check_tensorboard()
    check_apart(job)
    check_cache(job.cache)
    main = distributed.broadcast_from_main
    source = main(lambda: scan_source(job.source, recursive=job.recursive))
    target = main(lambda: scan_target(job.target, recursive=job.recursive))
    backbone = job_backbone(job.config, reporter.say)
    reporter.expect(_num_parts(job, source, target, backbone))
    main(lambda: open_run(job.out, overwrite=job.overwrite, resume=job.resume))
    data = read_data(job, source, target, backbone, reporter)
    main(lambda: _write_inputs(job, folder, data))
    return data, backbone


def _num_parts(job: Job, source: SourceFiles, target: TargetFiles, backbone: Backbone) -> int:
    """Return the length of the progress bar: the images of this process, and the steps."""
    images = len(target.paths) + sum(map(len, source.classes.values()))
    classes, end = len(source.classes), job.config.rounds + 1
    steps = steps_before(end, job.config, classes, len(target.paths))
    return images * backbone.passes // distributed.world_size() + steps


def _write_inputs(job: Job, folder: RunFolder, data: Data) -> None:
    if job.overwrite and not job.resume:
        clear(folder)  # not earlier: unusable images must not cost the previous run
    settle_config(folder, job.config, data.fingerprint, environment(job))
    write_rejected(folder.rejected, data.rejected)


def _adapt(run: _Run) -> Adapted | None:
    """Return the result of Algorithm 2; None in processes other than rank 0."""
    is_main, shared = distributed.is_main(), run.job.config.finetune != "none"
    if not shared:  # one thread trains a head on features faster than several processes would
        distributed.destroy()
    adapted = _run_algorithm(run, is_main=is_main) if is_main or shared else None
    distributed.destroy()
    return adapted if is_main else None


def _run_algorithm(run: _Run, *, is_main: bool) -> Adapted:
    job, data, config = run.job, run.data, run.job.config
    event_folder = run.folder.tensorboard if job.tensorboard and is_main else None
    faiss.omp_set_num_threads(1)
    if config.finetune == "none":
        # The head is small: one thread is nearly as fast as two, and much faster than two on a
        # busy machine; and the result is the same on any number of cores.
        torch.set_num_threads(1)
    with threadpool_limits(1), open_events(event_folder) as events:
        return adapt(
            data.source,
            data.target,
            config,
            images=_image_inputs(data, run.backbone, config),
            checkpoints=run.folder.checkpoints,
            callbacks=_callbacks(run, events) if is_main else None,
        )


def _callbacks(run: _Run, events: Events) -> Callbacks:
    num_known, num_target = len(run.data.class_names), len(run.data.target)
    reporter = RunReporter(run.folder, run.reporter, events, run.job.config, num_known, num_target)
    reporter.begin()
    return reporter.callbacks


def _image_inputs(data: Data, backbone: Backbone, config: TrainConfig) -> ImageInputs | None:
    if config.finetune == "none":
        return None
    return ImageInputs(
        backbone,
        data.source_images,
        data.target_images,
        layers=config.finetune,
        workers=num_workers(config.workers, config.batch_size) or distributed.cpus(),
    )


def _write_results(run: _Run, adapted: Adapted) -> Manifest:
    """Write tables, bundle and report."""
    folder, data, config = run.folder, run.data, run.job.config
    final = final_model(adapted, data.class_names)
    write_discovery(folder.discovery, final, data.target_images)
    _write_map(run, final)
    absent = absent_classes(adapted.outcome)
    findings = (*adapted.findings, *empty_classes(final.predicted, final.labels, absent))
    run.reporter.say("exporting the model, and comparing the export with it")
    manifest = make_bundle(
        folder.bundle,
        final,
        trained_backbone(run.backbone, adapted.networks.backbone),
        source=data.source_images,
        target=data.target_images,
        status=statuses(adapted.findings),
        trust=adapted.trust,
        run={
            "config": dataclasses.asdict(config),
            "notes": [str(finding) for finding in findings],
            "failure": adapted.failure,
            "seconds": round(time.time() - run.started, 1),
            **environment(run.job),
        },
        neighbours=config.neighbours,
    )
    write_report(folder.root, run.reporter)
    run.reporter.expect(0)
    return manifest


def _write_map(run: _Run, final: FinalModel) -> None:
    run.reporter.say("arranging the target on a map")
    rows, places = make_map(final.features, seed=run.job.config.seed)
    names = run.data.target_images.names()
    write_map(run.folder.map, [names[row] for row in rows], places)


def _is_finished(folder: RunFolder) -> bool:
    return (folder.bundle / MANIFEST).is_file() and folder.report.is_file()


def _finished(folder: RunFolder, reporter: Reporter) -> TrainResult:
    manifest = read_manifest(folder.bundle)
    reporter.say(f"{folder.root}: this run is finished")
    _raise_if_diverged(manifest.run.get("failure", ""))
    return TrainResult(manifest, 0)


def _raise_if_diverged(failure: str) -> None:
    if failure:
        raise GateError(failure)
