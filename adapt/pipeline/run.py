"""The training job: adapt to the target folder; write a bundle and a report."""

import dataclasses
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial

import faiss
import torch
from threadpoolctl import threadpool_limits

from scda.adapt.audit.findings import write_findings
from scda.adapt.audit.of_run import audit_run
from scda.adapt.config import TrainConfig
from scda.adapt.data.dataset import Data, job_backbone, read_data, with_features
from scda.adapt.data.domain_statistics import (
    DomainStatistics,
    read_statistics,
    write_statistics,
)
from scda.adapt.data.feature_cache import check_cache
from scda.adapt.data.job import Job, check_job
from scda.adapt.data.recorded import DOMAINS, LOST, Recorded
from scda.adapt.data.scan import Rejected, SourceFiles, TargetFiles, scan_source, scan_target
from scda.adapt.discovery.diagnostics import empty_classes
from scda.adapt.discovery.findings import statuses
from scda.adapt.discovery.large import LARGE
from scda.adapt.discovery.trust.absent import absent_classes
from scda.adapt.export.bundle_writer import make_bundle
from scda.adapt.export.final_model import FinalModel, final_model
from scda.adapt.export.rehearsal import LEAST, Rehearsal, agreement, rehearsing
from scda.adapt.pipeline.environment import environment
from scda.adapt.pipeline.events import Events, check_tensorboard, open_events
from scda.adapt.pipeline.export import export_beside
from scda.adapt.pipeline.run_reporter import RunReporter, steps_before
from scda.adapt.pipeline.statistics import Chosen, choose_statistics
from scda.adapt.pipeline.takeover import Takeover, open_takeover, with_choice
from scda.adapt.report.report import write_report
from scda.adapt.runs.folder import RunFolder, check_run, clear, open_run, read_config, settle_config
from scda.adapt.runs.images_table import read_images, write_images
from scda.adapt.runs.tables import (
    read_rejected,
    write_discovery,
    write_held_out,
    write_rejected,
)
from scda.adapt.runs.target_map import make_map, write_map
from scda.adapt.runtime import distributed
from scda.adapt.runtime.device import memory_errors, select_device
from scda.adapt.runtime.progress import Reporter
from scda.adapt.training.algorithm import Adapted, adapt
from scda.adapt.training.finetune import ImageInputs, trained_backbone
from scda.adapt.training.first_classes import first_classes
from scda.adapt.training.runner import Callbacks
from scda.models.bundle import MANIFEST, Manifest, read_manifest
from scda.models.cpus import num_workers
from scda.models.errors import GateError
from scda.models.files import printable
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
    takeover: Takeover
    reporter: Reporter
    started: float  # seconds since the epoch
    is_shared: bool  # whether other runs have the same backbone


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
    started = time.time()
    distributed.init(select_device(job.config))
    if not distributed.is_main():
        reporter.mute()
    if job.tensorboard:
        check_tensorboard()
    main = distributed.broadcast_from_main
    main(lambda: _check(job))
    check_cache(job.cache)
    source = main(lambda: scan_source(job.source, recursive=job.recursive, excluded=job.excluded))
    target = main(lambda: scan_target(job.target, recursive=job.recursive, excluded=job.excluded))
    backbone = job_backbone(job.config, reporter.say)
    reporter.expect(_num_parts(job, source, target, backbone))
    with ExitStack() as stack:
        opened = open_run(job.out, overwrite=job.overwrite, resume=job.resume)
        folder = main(lambda: stack.enter_context(opened))
        recorded = main(lambda: _recorded(job, folder))
        data = read_data(job, source, target, backbone, reporter, recorded)
        takeover = main(lambda: open_takeover(job.config, data, backbone, reporter))
        recorded = main(lambda: with_choice(recorded, data, job.config))
        chosen = choose_statistics(job, data, backbone, reporter, recorded)
        data = with_features(data, chosen.source, chosen.target, chosen.backbone)
        if main(lambda: _settle_inputs(job, folder, data, chosen, takeover)):
            return _finished(job, folder, data, reporter) if distributed.is_main() else None
        _warn_of_rejected(folder, data.rejected, reporter)
        is_shared = job.config.finetune == "none" and not chosen.statistics
        run = _Run(job, folder, data, chosen.backbone, takeover, reporter, started, is_shared)
        rehearsal = stack.enter_context(_rehearsing(run))
        adapted = _adapt(run)
        if adapted is None:
            return None
        manifest = _write_results(run, adapted, rehearsal)
        rejected = _reject_lost(run)
        write_report(folder.root, run.reporter)
        run.reporter.expect(0)
        _raise_if_diverged(adapted.failure)
        export_beside(folder, job.config, data, reporter)
        return TrainResult(manifest, len(rejected))


def _recorded(job: Job, folder: RunFolder) -> Recorded:
    """Return the images that a resumed run began with, of the folders that are still the same."""
    if not (job.resume and folder.config.is_file()):
        return Recorded()
    before, recorded = read_config(folder), read_images(folder.images)
    is_same = {name: before.get(name) == str(getattr(job, name).resolve()) for name in DOMAINS}
    same = {name: getattr(recorded, name) for name in DOMAINS if is_same[name]}
    return Recorded(
        **same, statistics=_recorded_statistics(folder) if all(is_same.values()) else None
    )


def _recorded_statistics(folder: RunFolder) -> Mapping[str, DomainStatistics] | None:
    """Return the choice of a run whose images have been recorded, which is when it is written."""
    return read_statistics(folder.statistics) if folder.images.is_file() else None


def _check(job: Job) -> None:
    check_job(job)
    check_run(job.out, overwrite=job.overwrite, resume=job.resume)


def _num_parts(job: Job, source: SourceFiles, target: TargetFiles, backbone: Backbone) -> int:
    """Return the length of the progress bar: the images of this process, and the steps."""
    images = len(target.paths) + sum(map(len, source.classes.values()))
    classes, end = len(source.classes), job.config.rounds + 1
    steps = steps_before(end, job.config, classes, len(target.paths))
    return images * backbone.passes // distributed.world_size() + steps


def _settle_inputs(
    job: Job, folder: RunFolder, data: Data, chosen: Chosen, takeover: Takeover
) -> bool:
    """Write what the run is made from, or compare it; return whether the run is finished."""
    if job.overwrite:
        clear(folder)  # not earlier: unusable images must not cost the previous run
    inputs = data.fingerprint | takeover.fingerprint
    settle_config(folder, job.config, inputs, environment(job))
    if not folder.images.is_file():
        if chosen.statistics:
            write_statistics(folder.statistics, **chosen.statistics)
        write_images(folder.images, data.source_images, data.target_images)
    if (folder.bundle / MANIFEST).is_file() and folder.report.is_file():
        return True
    write_rejected(folder.rejected, data.rejected)
    return False


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
    _tell_of_labelled(run)
    faiss.omp_set_num_threads(1)
    if config.finetune == "none":
        # The head is small: one thread is nearly as fast as two, and much faster than two on a
        # busy machine; and the result is the same on any number of cores.
        torch.set_num_threads(1)
    with threadpool_limits(1), open_events(event_folder) as events, memory_errors():
        return adapt(
            data.source,
            data.target,
            config,
            images=_image_inputs(data, run.backbone, config),
            anchors=run.takeover.anchors(data),
            classifier=run.backbone.classifier,
            shared=data.shared,
            checkpoints=run.folder.checkpoints,
            callbacks=_callbacks(run, events) if is_main else None,
        )


def _tell_of_labelled(run: _Run) -> None:
    """Say which classes are discovered, since only labelled target images are known of them."""
    data, shared = run.data, run.data.shared
    if shared is None:
        return
    first = first_classes(data.source.labels.numpy(), shared, run.job.config)
    names = [name for label, name in enumerate(data.class_names) if label not in first.classes]
    if names:
        run.reporter.say(
            f"classes of which the source holds target images alone: {', '.join(names)}; they are "
            "discovered from all images of the target, and named by these"
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
        pinned=select_device(config).type == "cuda",
    )


def _write_results(
    run: _Run, adapted: Adapted, rehearsing: Callable[[], Rehearsal | None]
) -> Manifest:
    """Write tables, bundle and report."""
    folder, data, config = run.folder, run.data, run.job.config
    final, memory, after = run.takeover.finish(final_model(adapted, data.class_names), data)
    write_discovery(folder.discovery, final, data.target_images)
    run.reporter.say("looking for wrong labels and copies")
    write_findings(folder.audit, audit_run(data))
    _write_map(run, final)
    absent = absent_classes(adapted.outcome)
    findings = (*adapted.findings, *empty_classes(final.predicted, final.labels, absent))
    rehearsal = None if adapted.failure else rehearsing()
    if rehearsal:
        agreed = agreement(final, data.target, rehearsal)
        write_held_out(folder.held_out, final, data.target_images, agreed)
    run.reporter.say("exporting the model, and comparing the export with it")
    return make_bundle(
        folder.bundle,
        final,
        trained_backbone(run.backbone, adapted.networks.backbone),
        cache=run.job.cache if run.is_shared else None,
        source=data.source_images,
        target=data.target_images,
        status=statuses(adapted.findings),
        trust=adapted.trust,
        held_out=rehearsal.figures if rehearsal else None,
        run={
            "config": dataclasses.asdict(config),
            "notes": [str(finding) for finding in findings],
            "failure": adapted.failure,
            "seconds": round(time.time() - run.started, 1),
            **environment(run.job),
        },
        neighbours=config.neighbours,
        memory=memory,
        after=after,
    )


@contextmanager
def _rehearsing(run: _Run) -> Iterator[Callable[[], Rehearsal | None]]:
    """Yield a function that returns what a second training says of images it was not trained on.

    The second training needs nothing of the first one. Beside one that takes long, a second CPU
    trains it.
    """
    data, config = run.data, run.job.config
    if config.finetune != "none" or len(data.target) < LEAST or not distributed.is_main():
        yield lambda: None
        return
    apart = len(data.target) > LARGE and distributed.cpus() > 1
    with rehearsing(
        data.source,
        data.target,
        config,
        run.backbone.classifier,
        shared=data.shared,
        apart=apart and select_device(config).type == "cpu",
    ) as result:
        yield partial(_held_out, run, result)


def _held_out(run: _Run, result: Callable[[], Rehearsal | None]) -> Rehearsal | None:
    run.reporter.say("holding out a fifth of the target, to learn how far new images lie")
    with threadpool_limits(1):
        return result()


def _reject_lost(run: _Run) -> list[Rejected]:
    """Return all unusable files, with those that were lost while the run was under way."""
    data, before = run.data, {bad.path for bad in run.data.rejected}
    lost = [*data.source_images.lost(), *data.target_images.lost()]
    late = [Rejected(path, "unreadable", LOST) for path in lost if path not in before]
    if late:
        write_rejected(run.folder.rejected, [*data.rejected, *late])
        _warn_of_rejected(run.folder, late, run.reporter)
    return [*data.rejected, *late]


def _warn_of_rejected(folder: RunFolder, rejected: list[Rejected], reporter: Reporter) -> None:
    lost = [bad.path for bad in rejected if bad.message == LOST]
    if len(rejected) > len(lost):
        count = len(rejected) - len(lost)
        reporter.warn(f"{count} files are not usable images; {folder.rejected} lists them")
    if lost:
        reporter.warn(
            f"{len(lost)} files vanished or changed while the run was under way, the first of them "
            f"{printable(str(lost[0]))}; they are shown nowhere, and {folder.rejected} lists them"
        )


def _write_map(run: _Run, final: FinalModel) -> None:
    run.reporter.say("arranging the target on a map")
    rows, places = make_map(final.features, seed=run.job.config.seed)
    names = run.data.target_images.names()
    write_map(run.folder.map, [names[row] for row in rows], places)


def _finished(job: Job, folder: RunFolder, data: Data, reporter: Reporter) -> TrainResult:
    manifest = read_manifest(folder.bundle)
    reporter.say(f"{folder.root}: this run is finished")
    _raise_if_diverged(manifest.run.get("failure", ""))
    export_beside(folder, job.config, data, reporter)
    return TrainResult(manifest, len(read_rejected(folder.rejected)))


def _raise_if_diverged(failure: str) -> None:
    if failure:
        raise GateError(failure)
