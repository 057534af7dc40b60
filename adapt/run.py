"""The main job, from two folders to a bundle and a report; each room once and never back."""

import dataclasses
import hashlib
import importlib.metadata
import platform
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import faiss
import torch
from threadpoolctl import threadpool_limits

from scda.adapt.alternate import Adapted, Stage, adapt
from scda.adapt.config import TrainConfig
from scda.adapt.discover import entropy
from scda.adapt.features import Extracted, extract
from scda.adapt.finish import Final, Images, finalise, make_bundle
from scda.adapt.progress import Reporter
from scda.adapt.report import write_report
from scda.adapt.rundir import RunFolder, clear, csv_text, open_run, settle_config
from scda.adapt.scan import Rejected, SourceFiles, TargetFiles, scan_source, scan_target
from scda.adapt.train import Labelled, Networks
from scda.models.backbones import Backbone, load_backbone
from scda.models.bundle import MANIFEST, Manifest, read_manifest
from scda.models.errors import DataError, UsageError
from scda.models.files import write_atomically

_LOSSES_EVERY = 50  # steps
_LIBRARIES = ("scda", "torch", "onnxruntime-gpu", "onnxruntime", "faiss-cpu", "timm", "numpy")
_MEGABATCH_OUTPUTS = 2  # images per output that the class correlation needs


@dataclass(frozen=True, kw_only=True)
class Job:
    """What to train on, and where everything goes."""

    source: Path
    target: Path
    out: Path
    cache: Path  # folder of the feature cache
    config: TrainConfig
    recursive: bool = True
    overwrite: bool = False
    resume: bool = False


@dataclass(frozen=True)
class _Data:
    """Both domains as features, with what was left out on the way."""

    source: Labelled
    target: torch.Tensor
    class_names: list[str]
    source_images: Images
    target_images: Images
    rejected: list[Rejected]
    fingerprint: dict[str, Any]


def train(job: Job, reporter: Reporter) -> Manifest:
    """Run the main job and return the bundle's manifest.

    Raises:
        UsageError: If a path or an option is wrong.
        DataError: If the images cannot be used for this.
        GateError: If training diverges or the export drifts.
    """
    started = time.time()
    run = RunFolder(job.out)
    if job.resume and (run.bundle / MANIFEST).is_file() and run.report.is_file():
        reporter.say(f"{job.out}: finished already")
        return read_manifest(run.bundle)
    source, target = (
        scan_source(job.source, recursive=job.recursive),
        scan_target(job.target, recursive=job.recursive),
    )
    backbone = _backbone(job.config)
    run = open_run(job.out, overwrite=job.overwrite, resume=job.resume)
    data = _read(job, source, target, backbone, reporter)
    if job.overwrite and not job.resume:
        clear(run)  # not sooner: data that cannot be used must not cost the run that was there
    settle_config(run, job.config, data.fingerprint, _surroundings(job))
    _write_rejected(run, data.rejected)

    adapted = _adapt(run, data, job.config, reporter)
    final = finalise(adapted, data.source, data.target, data.class_names)
    _write_discovery(run, final, data.target_images)
    reporter.say("exporting, and holding the export to the trained model")
    manifest = make_bundle(
        run.bundle,
        final,
        backbone,
        source=data.source_images,
        target=data.target_images,
        status=tuple(note.split(":")[0] for note in adapted.notes) or ("ok",),
        run={
            "config": dataclasses.asdict(job.config),
            "notes": adapted.notes,
            "seconds": round(time.time() - started, 1),
            **_surroundings(job),
        },
        neighbours=job.config.neighbours,
    )
    write_report(run.root)
    return manifest


def plan(job: Job, reporter: Reporter) -> None:
    """Scan both folders by file headers and print what `train` would do."""
    from scda.adapt.scan import unreadable

    source, target = scan_source(job.source), scan_target(job.target)
    _backbone(job.config)
    for name, paths in source.classes.items():
        bad = len(unreadable(paths))
        reporter.say(f"source {name}: {len(paths) - bad} images, {bad} rejected")
    bad = len(unreadable(target.paths))
    reporter.say(f"target: {len(target.paths) - bad} images, {bad} rejected")
    config = dataclasses.asdict(job.config)
    reporter.say("config: " + ", ".join(f"{name}={value}" for name, value in config.items()))


def _backbone(config: TrainConfig) -> Backbone:
    if config.device == "cuda" and not torch.cuda.is_available():
        raise UsageError("device cuda asked for, torch sees none; --device cpu or auto")
    weights = Path(config.weights) if config.weights else None
    return load_backbone(config.backbone, weights=weights, image_size=config.image_size)


def _read(
    job: Job, source: SourceFiles, target: TargetFiles, backbone: Backbone, reporter: Reporter
) -> _Data:
    files = [(name, path) for name, paths in source.classes.items() for path in paths]
    of_source = _extract([path for _, path in files], backbone, job, reporter, "source images")
    of_target = _extract(target.paths, backbone, job, reporter, "target images")
    rejected = of_source.rejected + of_target.rejected
    for bad in rejected:
        reporter.detail(f"rejected {bad.path}: {bad.message}")
    if rejected:
        reporter.warn(f"{len(rejected)} files are no usable image; see rejected.csv in the run")
    class_of = {path: name for name, path in files}
    labels = [class_of[path] for path in of_source.paths]
    class_names = [name for name in source.classes if name in set(labels)]
    for name in source.classes.keys() - set(class_names):
        reporter.warn(f"class folder {name} has no usable image and is left out")
    _check_data(source, target, class_names, of_target, job.config)
    numbers = torch.tensor([class_names.index(label) for label in labels])
    reporter.say(
        f"source: {len(labels)} images of {len(class_names)} classes; "
        f"target: {len(of_target.paths)} images; skipped hidden files: "
        f"{source.hidden + target.hidden}"
    )
    return _Data(
        Labelled(torch.from_numpy(of_source.features), numbers),
        torch.from_numpy(of_target.features),
        class_names,
        Images(source.root, of_source.paths),
        Images(target.root, of_target.paths),
        rejected,
        {
            "classes": class_names,
            "backbone": backbone.id,
            "preprocessing": backbone.preprocessing.id,
            "source": _digest([f"{d} {n}" for d, n in zip(of_source.digests, labels, strict=True)]),
            "target": _digest(of_target.digests),
        },
    )


def _extract(
    paths: Sequence[Path], backbone: Backbone, job: Job, reporter: Reporter, what: str
) -> Extracted:
    reporter.begin(what, len(paths))
    return extract(
        paths,
        backbone,
        cache_folder=job.cache,
        workers=job.config.workers,
        on_progress=reporter.done,
    )


def _check_data(
    source: SourceFiles,
    target: TargetFiles,
    class_names: list[str],
    of_target: Extracted,
    config: TrainConfig,
) -> None:
    if not class_names:
        raise DataError(f"{source.root}: no class folder holds a usable image")
    if len(class_names) == 1:
        raise DataError(f"{source.root}: only one class with images, {class_names[0]}; want two")
    if len(of_target.paths) < 2:
        why = f"; {of_target.rejected[0].message}" if of_target.rejected else ""
        count = len(of_target.paths)
        raise DataError(f"{target.root}: {count} readable target images, want 2 or more{why}")


def _adapt(run: RunFolder, data: _Data, config: TrainConfig, reporter: Reporter) -> Adapted:
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

    reporter.begin("pre-training", config.pretrain_steps)
    # The head is small: one thread is nearly as fast as two alone, far faster than two on a busy
    # machine, and makes the result the same on any number of cores.
    torch.set_num_threads(1)
    faiss.omp_set_num_threads(1)
    with threadpool_limits(1):
        return adapt(
            data.source,
            data.target,
            config,
            checkpoints=run.checkpoints,
            on_step=on_step,
            on_stage=on_stage,
            on_resume=on_resume,
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


def _write_discovery(run: RunFolder, final: Final, target: Images) -> None:
    import numpy as np

    pseudo = np.full(len(target.paths), "", object)
    if final.discovery:
        candidates, ids = final.discovery.candidates, np.array(final.class_ids, object)
        pseudo[candidates.known] = ids[candidates.known_labels]
        pseudo[candidates.implicit] = ids[len(final.class_names) + final.discovery.implicit_labels]
    log_probs = np.log(np.maximum(final.probabilities, np.finfo(np.float32).tiny))
    entropies, predicted = entropy(log_probs), final.predicted
    rows = []
    unit = final.features / np.maximum(np.linalg.norm(final.features, axis=1, keepdims=True), 1e-12)
    for row, name in enumerate(target.names()):
        label = predicted[row]
        distance = float(1 - unit[row] @ final.centroids[label])
        rows.append(
            [name, pseudo[row], f"{entropies[row]:.6f}", final.class_ids[label], f"{distance:.6f}"]
        )
    header = ("path", "pseudo_label", "entropy", "cluster", "distance")
    write_atomically(run.discovery, csv_text(header, rows).encode(errors="surrogateescape"))


def _write_rejected(run: RunFolder, rejected: list[Rejected]) -> None:
    rows = [(bad.path, bad.code, bad.message) for bad in rejected]
    text = csv_text(("path", "error_code", "error"), rows)
    write_atomically(run.rejected, text.encode(errors="surrogateescape"))


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
        "device": "cpu",
        "created": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


def _digest(lines: Sequence[str]) -> str:
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]
