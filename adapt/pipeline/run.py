"""The main job, from two folders to a bundle and a report; each room once and never back."""

import dataclasses
import importlib.metadata
import platform
import time
from dataclasses import dataclass
from functools import partial
from typing import Any

import faiss
import torch
from threadpoolctl import threadpool_limits

from scda.adapt.config import TrainConfig
from scda.adapt.data.dataset import Data, Job, check_apart, job_backbone, read_data
from scda.adapt.data.scan import SourceFiles, TargetFiles, scan_source, scan_target
from scda.adapt.discovery.diagnostics import empty_classes
from scda.adapt.discovery.findings import statuses
from scda.adapt.export.finish import finalise, make_bundle
from scda.adapt.pipeline.events import check_tensorboard, open_events
from scda.adapt.pipeline.run_reporter import RunReporter, steps_before
from scda.adapt.report.report import write_report
from scda.adapt.runs.folder import RunFolder, clear, open_run, settle_config
from scda.adapt.runs.tables import write_discovery, write_rejected
from scda.adapt.runs.target_map import make_map, write_map
from scda.adapt.runtime import distributed
from scda.adapt.runtime.device import chosen_device
from scda.adapt.runtime.progress import Reporter
from scda.adapt.training.algorithm import Adapted, adapt
from scda.adapt.training.finetune import ImageInputs, learnt
from scda.models.backbones import Backbone
from scda.models.bundle import MANIFEST, Manifest, read_manifest
from scda.models.errors import GateError

_LIBRARIES = ("scda", "torch", "onnxruntime-gpu", "onnxruntime", "faiss-cpu", "timm", "numpy")


@dataclass(frozen=True)
class Trained:
    """The end of the main job."""

    manifest: Manifest
    rejected: int  # files that are no usable image


def train(job: Job, reporter: Reporter) -> Trained | None:
    """Run the main job: two folders in, a bundle and a report out.

    Returns:
        What came out; None in a process of several that is not the first.

    Raises:
        UsageError: If a path or an option is wrong.
        DataError: If the images cannot be used for this.
        GateError: If the export drifts, or training diverges: then the bundle is that of the last
            good round, where there was one.
    """
    started = time.time()
    run = RunFolder(job.out)
    distributed.init(chosen_device(job.config))
    if not distributed.is_main():
        reporter.mute()
    if job.resume and distributed.broadcast_from_main(lambda: _is_finished(run)):
        return _finished(run, reporter) if distributed.is_main() else None
    if job.tensorboard:
        check_tensorboard()
    check_apart(job)
    source = distributed.broadcast_from_main(
        lambda: scan_source(job.source, recursive=job.recursive)
    )
    target = distributed.broadcast_from_main(
        lambda: scan_target(job.target, recursive=job.recursive)
    )
    backbone = job_backbone(job.config, reporter.say)
    reporter.expect(_parts(job, source, target))
    distributed.broadcast_from_main(
        lambda: open_run(job.out, overwrite=job.overwrite, resume=job.resume)
    )
    data = read_data(job, source, target, backbone, reporter)
    distributed.broadcast_from_main(lambda: _settle(run, data, job))

    first, shared = distributed.is_main(), job.config.finetune != "none"
    if not shared:  # one thread trains a head on features in no time
        distributed.destroy()
    adapted = _adapt(run, data, backbone, job, reporter) if first or shared else None
    distributed.destroy()
    if adapted is None or not first:
        return None
    final = finalise(adapted, data.class_names)
    write_discovery(run.discovery, final, data.target_images)
    reporter.say("laying the target out on a map")
    rows, places = make_map(final.features, seed=job.config.seed)
    names = data.target_images.names()
    write_map(run.map, [names[row] for row in rows], places)
    empty = empty_classes(final.predicted, final.labels)
    reporter.say("exporting, and holding the export to the trained model")
    manifest = make_bundle(
        run.bundle,
        final,
        learnt(backbone, adapted.networks.backbone),
        source=data.source_images,
        target=data.target_images,
        status=statuses(adapted.findings),
        run={
            "config": dataclasses.asdict(job.config),
            "notes": [str(finding) for finding in (*adapted.findings, *empty)],
            "failure": adapted.failure,
            "seconds": round(time.time() - started, 1),
            **_surroundings(job),
        },
        neighbours=job.config.neighbours,
    )
    write_report(run.root, reporter)
    reporter.expect(0)
    _refuse_diverged(adapted.failure)
    return Trained(manifest, len(data.rejected))


def _settle(run: RunFolder, data: Data, job: Job) -> None:
    if job.overwrite and not job.resume:
        clear(run)  # not sooner: data that cannot be used must not cost the run that was there
    settle_config(run, job.config, data.fingerprint, _surroundings(job))
    write_rejected(run.rejected, data.rejected)


def _adapt(run: RunFolder, data: Data, backbone: Backbone, job: Job, reporter: Reporter) -> Adapted:
    threads = torch.get_num_threads()
    faiss.omp_set_num_threads(1)
    folder = run.tensorboard if job.tensorboard and distributed.is_main() else None
    with threadpool_limits(1), open_events(folder) as events:
        # The head is small: one thread is nearly as fast as two alone, far faster than two on a
        # busy machine, and makes the result the same on any number of cores.
        torch.set_num_threads(1 if job.config.finetune == "none" else threads)
        work = partial(
            adapt,
            data.source,
            data.target,
            job.config,
            images=_images(data, backbone, job.config),
            checkpoints=run.checkpoints,
        )
        if not distributed.is_main():
            return work()
        classes, images = len(data.class_names), len(data.target)
        run_reporter = RunReporter(run, reporter, events, job.config, classes, images)
        run_reporter.begin()
        return work(callbacks=run_reporter.callbacks)


def _images(data: Data, backbone: Backbone, config: TrainConfig) -> ImageInputs | None:
    if config.finetune == "none":
        return None
    return ImageInputs(
        backbone,
        data.source_images,
        data.target_images,
        part=config.finetune,
        workers=config.workers or distributed.cpus(),
    )


def _parts(job: Job, source: SourceFiles, target: TargetFiles) -> int:
    """Return how long the bar is: an image and a training step are a part each."""
    images = len(target.paths) + sum(map(len, source.classes.values()))
    classes, end = len(source.classes), job.config.rounds + 1
    return images // distributed.world_size() + steps_before(
        end, job.config, classes, len(target.paths)
    )


def _is_finished(run: RunFolder) -> bool:
    return (run.bundle / MANIFEST).is_file() and run.report.is_file()


def _finished(run: RunFolder, reporter: Reporter) -> Trained:
    manifest = read_manifest(run.bundle)
    reporter.say(f"{run.root}: finished already")
    _refuse_diverged(manifest.run.get("failure", ""))
    return Trained(manifest, 0)


def _refuse_diverged(failure: str) -> None:
    if failure:
        raise GateError(failure)


def _surroundings(job: Job) -> dict[str, Any]:
    versions = {}
    for library in _LIBRARIES:
        try:
            versions[library] = importlib.metadata.version(library)
        except importlib.metadata.PackageNotFoundError:
            continue
    return {
        "source": str(job.source.resolve()),
        "target": str(job.target.resolve()),
        "versions": versions,
        "host": platform.node(),
        "python": platform.python_version(),
        "device": chosen_device(job.config).type,
        "created": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }
