"""The main job, from two folders to a bundle and a report; each room once and never back."""

import dataclasses
import importlib.metadata
import platform
import time
from dataclasses import dataclass
from typing import Any

import faiss
import torch
from threadpoolctl import threadpool_limits

from scda.adapt.alternate import Adapted, Stage, adapt
from scda.adapt.config import TrainConfig
from scda.adapt.data import Data, Job, check_apart, job_backbone, read_data
from scda.adapt.device import chosen_device
from scda.adapt.finetune import ImageInputs
from scda.adapt.finish import finalise, make_bundle
from scda.adapt.progress import Reporter
from scda.adapt.report import write_report
from scda.adapt.rundir import RunFolder, clear, open_run, settle_config
from scda.adapt.scan import scan_source, scan_target
from scda.adapt.tables import write_discovery, write_rejected
from scda.adapt.target_map import make_map, write_map
from scda.adapt.train import Networks
from scda.models.backbones import Backbone
from scda.models.bundle import MANIFEST, Manifest, read_manifest
from scda.models.cpus import usable_cpus

_LOSSES_EVERY = 50  # steps
_LIBRARIES = ("scda", "torch", "onnxruntime-gpu", "onnxruntime", "faiss-cpu", "timm", "numpy")
_IMAGES_PER_OUTPUT = 2  # in a batch, for a class correlation that means something


@dataclass(frozen=True)
class Trained:
    """The end of the main job."""

    manifest: Manifest
    rejected: int  # files that are no usable image


def train(job: Job, reporter: Reporter) -> Trained:
    """Run the main job: two folders in, a bundle and a report out.

    Raises:
        UsageError: If a path or an option is wrong.
        DataError: If the images cannot be used for this.
        GateError: If training diverges or the export drifts.
    """
    started = time.time()
    run = RunFolder(job.out)
    if job.resume and (run.bundle / MANIFEST).is_file() and run.report.is_file():
        reporter.say(f"{job.out}: finished already")
        return Trained(read_manifest(run.bundle), 0)
    check_apart(job)
    source = scan_source(job.source, recursive=job.recursive)
    target = scan_target(job.target, recursive=job.recursive)
    backbone = job_backbone(job.config, reporter.say)
    run = open_run(job.out, overwrite=job.overwrite, resume=job.resume)
    data = read_data(job, source, target, backbone, reporter)
    if job.overwrite and not job.resume:
        clear(run)  # not sooner: data that cannot be used must not cost the run that was there
    settle_config(run, job.config, data.fingerprint, _surroundings(job))
    write_rejected(run.rejected, data.rejected)

    adapted = _adapt(run, data, backbone, job.config, reporter)
    final = finalise(adapted, data.class_names)
    write_discovery(run.discovery, final, data.target_images)
    reporter.say("laying the target out on a map")
    rows, places = make_map(final.features, seed=job.config.seed)
    names = data.target_images.names()
    write_map(run.map, [names[row] for row in rows], places)
    reporter.say("exporting, and holding the export to the trained model")
    manifest = make_bundle(
        run.bundle,
        final,
        backbone,
        source=data.source_images,
        target=data.target_images,
        status=tuple(dict.fromkeys(note.split(":")[0] for note in adapted.notes)) or ("ok",),
        run={
            "config": dataclasses.asdict(job.config),
            "notes": adapted.notes,
            "seconds": round(time.time() - started, 1),
            **_surroundings(job),
        },
        neighbours=job.config.neighbours,
    )
    write_report(run.root, reporter)
    return Trained(manifest, len(data.rejected))


def _adapt(
    run: RunFolder, data: Data, backbone: Backbone, config: TrainConfig, reporter: Reporter
) -> Adapted:
    rounds = config.iterations
    stage_number = 0
    round_steps = config.round_steps or max(1, len(data.target) // config.batch_size)

    def on_step(step: int, losses: dict[str, float]) -> None:
        reporter.done(step)
        if step % _LOSSES_EVERY == 0:
            run.append({"during": stage_number, "step": step, "losses": losses})

    def on_stage(stage: Stage, networks: Networks) -> None:
        run.append(_stage_record(stage))
        reporter.say(_stage_line(stage, rounds))
        if stage.round == 1:
            _warn_of_small_batch(stage, len(data.class_names), config, reporter)
        begin(stage.round + 1)

    def on_resume(finished: int) -> None:
        run.forget_after(finished)
        reporter.say(f"resumed after {'pre-training' if not finished else f'round {finished}'}")
        begin(finished + 1)

    def begin(number: int) -> None:
        nonlocal stage_number
        stage_number = number
        if number <= rounds:
            reporter.begin(f"round {number} of {rounds}", round_steps)

    if not any(run.checkpoints.glob("*.pt")):  # nothing to go on from: nothing to add to
        run.metrics.unlink(missing_ok=True)
    reporter.begin("pre-training", config.pretrain_length(len(data.class_names)))
    threads = torch.get_num_threads()
    faiss.omp_set_num_threads(1)
    with threadpool_limits(1):
        # The head is small: one thread is nearly as fast as two alone, far faster than two on a
        # busy machine, and makes the result the same on any number of cores.
        torch.set_num_threads(1 if config.finetune == "none" else threads)
        return adapt(
            data.source,
            data.target,
            config,
            images=_images(data, backbone, config),
            checkpoints=run.checkpoints,
            on_step=on_step,
            on_stage=on_stage,
            on_resume=on_resume,
        )


def _images(data: Data, backbone: Backbone, config: TrainConfig) -> ImageInputs | None:
    if config.finetune == "none":
        return None
    return ImageInputs(
        backbone,
        data.source_images,
        data.target_images,
        part=config.finetune,
        workers=config.workers or usable_cpus(),
    )


def _warn_of_small_batch(
    stage: Stage, num_known: int, config: TrainConfig, reporter: Reporter
) -> None:
    outputs = num_known + (stage.discovery.k_star if stage.discovery else 1)
    wanted = _IMAGES_PER_OUTPUT * outputs
    if config.batch_size < wanted:
        reporter.warn(
            f"--batch-size {config.batch_size} is small for {outputs} classes: "
            f"the class correlation is rough below {wanted}"
        )


def _stage_record(stage: Stage) -> dict[str, Any]:
    discovery = stage.discovery
    record: dict[str, Any] = {
        "round": stage.round,
        "unknown_share": stage.unknown_share,
        "losses": stage.losses,
        "seconds": round(stage.seconds, 2),
    }
    if discovery:
        record |= {
            "k_star": discovery.k_star,
            "k_scda": discovery.k_scda,
            "k_graph": discovery.k_graph,
            "known_candidates": len(discovery.candidates.known),
            "implicit_candidates": len(discovery.candidates.implicit),
            "curve": discovery.curve and dataclasses.asdict(discovery.curve),
            "notes": discovery.notes,
        }
    return record


def _stage_line(stage: Stage, rounds: int) -> str:
    share = f"{stage.unknown_share:.0%} of the target called new"
    if stage.discovery is None:
        return f"pre-trained: {share}"
    return f"round {stage.round} of {rounds}: k* = {stage.discovery.k_star}, {share}"


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
