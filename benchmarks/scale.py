"""Measure how time and memory of a training grow with the number of target images.

    python -m benchmarks.scale [--images 1000 10000 100000] [--seeds 0] [--work DIR]

Writes a source of 50 classes and a target of 150, made-up features of a mixture whose classes touch
and whose sizes follow a power law (benchmarks/speed/mixture.py), into the feature cache of images
that are all the same picture, with the backbone's file and the table of known files that such a
cache has. Runs the whole training on them, `--novel yes`, in a process of its own: from the cache
to the bundle and the report. No image goes through a backbone, and none is read again.

Prints a table over the sizes, and one of the steps for each size, whose seconds are those of the
run's own process. CPU seconds and memory in all are those of all its processes, memory as the sum
of their largest. The last lines compare time, memory and k* of the largest size with their bounds;
the exit code is 0 only if all pass.
"""

import argparse
import hashlib
import io
import json
import multiprocessing
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from benchmarks.speed.answers import Answer, exit_code
from benchmarks.speed.mixture import CLASSES, KNOWN, Mixture, mixture
from benchmarks.speed.steps import OTHER, Watch
from scda.adapt.data.known_files import FileState, KnownFile, KnownFiles
from scda.models.limits import LIMITS

OF_SOURCE = 100  # source images per class
MOST_SECONDS, MOST_GB, MOST_OFF = 240.0, 5.0, 0.1
BESIDE = "other processes"
_COMMENT = b"\xff\xfe"
_BACKBONE = "efficientnet_lite0"

STEPS = {
    "read files and cache": ["data.dataset.read_data", "data.scan.scan_target"],
    "whiten": ["discovery.novelty.whitening.fit_whitening", "training.domains.whitened"],
    "neighbours": [
        "discovery.propagation.neighbour_graph",
        "discovery.neighbours.nearest_others",
    ],
    "landing": ["discovery.novelty.landing.landing", "discovery.novelty.landing.similarity"],
    "decide what is new": ["discovery.novelty.orphans.find_orphans"],
    "propagate": ["discovery.propagation.propagate"],
    "pre-train": ["training.loop.pretrain"],
    "retrain": ["training.loop.retrain"],
    "infer": ["training.networks.infer", "training.networks.infer_together"],
    "count": [
        "discovery.space.space_of",
        "discovery.counting.accuracy.estimate_by_accuracy",
        "discovery.counting.surroundings.estimate_by_surroundings",
        "discovery.counting.size.estimate_by_size",
    ],
    "assign": ["discovery.assignment.assign"],
    "trust": ["training.assessment.run_trust", "training.assessment.outcome_of"],
    "final model": ["export.final_model.final_model", "pipeline.takeover.finish"],
    "hold out": ["pipeline.run._held_out"],
    "map and tables": ["pipeline.run._write_map", "runs.tables.write_discovery"],
    "bundle": ["export.bundle_writer.make_bundle"],
    "report": ["report.report.write_report"],
}


def make_data(root: Path, images: int, seed: int) -> None:
    """Write images, and made-up features of theirs into the cache."""
    from scda.adapt.data.backbone_file import backbone_file
    from scda.adapt.data.feature_cache import FeatureCache
    from scda.models.networks.backbones import load_backbone

    made = mixture(images, seed=seed)
    np.save(root / "truth.npy", made.labels)
    backbone = load_backbone(_BACKBONE)
    cache = FeatureCache(root / "cache", backbone)
    backbone_file(backbone, root / "cache")
    written: list[tuple[Path, str]] = []
    for paths, features in _parts(root, made):
        digests = [_write(path, number) for number, path in paths]
        cache.add(digests, features)
        written += zip([path for _, path in paths], digests, strict=True)
    _remember(cache.files, written)
    cache.close()


def _remember(files: KnownFiles, written: Sequence[tuple[Path, str]]) -> None:
    """Tell the cache of the files, as a run does that reads them when they are no longer new."""
    for path, digest in written:
        if state := FileState.of(path):
            files.add(path, KnownFile(state, digest), LIMITS)
    files.save()


def _parts(root: Path, made: Mixture) -> Iterator[tuple[list[tuple[int, Path]], Any]]:
    labels = np.repeat(np.arange(KNOWN), OF_SOURCE)
    of_source = [root / f"source/{label:03d}/{n}.jpg" for n, label in enumerate(labels.tolist())]
    yield [(-1 - number, path) for number, path in enumerate(of_source)], made.source(labels)
    first = 0
    for features in made.target():
        numbers = range(first, first + len(features))
        yield [(number, root / f"target/{number:07d}.jpg") for number in numbers], features
        first += len(features)


def _write(path: Path, number: int) -> str:
    """Write the picture with a comment that makes it another file, and return its digest."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = str(number).encode()
    data = _PICTURE[:2] + _COMMENT + (len(text) + 2).to_bytes(2, "big") + text + _PICTURE[2:]
    path.write_bytes(data)
    return hashlib.sha256(data).hexdigest()


def _picture() -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (64, 64), (90, 120, 60)).save(file, "JPEG")
    return file.getvalue()


_PICTURE = _picture()


def train(root: Path, images: int, seed: int) -> None:
    """Run the training, and write what it took to result.json."""
    from scda.adapt.config import TrainConfig
    from scda.adapt.data.job import Job
    from scda.adapt.pipeline.run import train
    from scda.adapt.runs.tables import read_discovery
    from scda.adapt.runtime.progress import Reporter

    config = TrainConfig(
        seed=seed,
        backbone=_BACKBONE,
        novel="yes",
        k_max=2 * CLASSES,
        backbone_statistics="pretrained",  # images are not what the features say
    )
    job = Job(
        source=root / "source",
        target=root / "target",
        out=root / "run",
        cache=root / "cache",
        config=config,
    )
    steps = {step: [f"scda.adapt.{name}" for name in names] for step, names in STEPS.items()}
    watch, wall, cpu = Watch(steps), time.monotonic(), time.process_time()
    watch.start()
    with Reporter(quiet=True) as reporter:
        trained = train(job, reporter)
    wall, cpu = time.monotonic() - wall, time.process_time() - cpu
    others = resource.getrusage(resource.RUSAGE_CHILDREN)
    beside = others.ru_utime + others.ru_stime
    steps_taken = {name: asdict(step) for name, step in watch.end().items()}
    result = {
        "wall_seconds": wall,
        "cpu_seconds": cpu + beside,
        "peak_gb": max(step["peak_gb"] for step in steps_taken.values()),
        "steps": steps_taken | {BESIDE: {"cpu_seconds": beside, "peak_gb": watch.others_gb}},
    }
    assert trained
    truth = np.load(root / "truth.npy")
    rows = {Path(row.path).stem: row.cluster for row in read_discovery(root / "run/discovery.csv")}
    found = np.array([rows[f"{number:07d}"] for number in range(images)])
    ids, predicted = np.unique(found, return_inverse=True)
    result |= _scores(truth, predicted, sum(name.startswith("discovered") for name in ids))
    (root / "result.json").write_text(json.dumps(result))


def _scores(truth: Any, predicted: Any, k_star: int) -> dict[str, float]:
    from scda.adapt.discovery.matching import clustering_accuracy

    new = int((np.bincount(truth, minlength=CLASSES)[KNOWN:] >= 3).sum())
    accuracy = clustering_accuracy(predicted, truth)
    return {"k_star": k_star, "k_true": new, "accuracy": accuracy}


def measure(work: Path | None, images: int, seed: int) -> dict[str, Any]:
    """Return what a training on this many target images took."""
    if work:
        work.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=work) as name:
        root = Path(name)
        apart(make_data, root, images, seed)
        apart(train, root, images, seed)
        return {"images": images, "seed": seed, **json.loads((root / "result.json").read_text())}


def apart(make: Callable[..., None], *arguments: object) -> None:
    """Call a function in a new process, whose memory and time are its own."""
    process = multiprocessing.get_context("spawn").Process(target=make, args=arguments)
    process.start()
    process.join()
    if process.exitcode:
        sys.exit(1)


def show(results: Sequence[dict[str, Any]]) -> None:
    """Print the curve, and the steps of every size."""
    print("\n| target images | seed | wall s | CPU s | peak GB | k* (true) | accuracy |")
    print("|---|---|---|---|---|---|---|")
    for of in results:
        cells = (
            f"{of['images']:,}",
            of["seed"],
            f"{of['wall_seconds']:.0f}",
            f"{of['cpu_seconds']:.0f}",
            f"{of['peak_gb']:.2f}",
            f"{of['k_star']} ({of['k_true']})",
            f"{of['accuracy']:.3f}",
        )
        print(f"| {' | '.join(map(str, cells))} |")
    sizes = sorted({of["images"] for of in results})
    first = {size: next(of for of in results if of["images"] == size) for size in sizes}
    print(f"\n| step | {' | '.join(f'{size:,}: CPU s (share), GB' for size in sizes)} |")
    print(f"|---|{'---|' * len(sizes)}")
    for step in [*STEPS, OTHER, BESIDE]:
        print(f"| {step} | {' | '.join(_cell(first[size], step) for size in sizes)} |")


def _cell(of: dict[str, Any], step: str) -> str:
    took = of["steps"].get(step)
    if not took:
        return ""
    share = took["cpu_seconds"] / of["cpu_seconds"]
    return f"{took['cpu_seconds']:.1f} ({share:.0%}), {took['peak_gb']:.2f}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print both tables, and return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    add = parser.add_argument
    add("--images", type=int, nargs="+", default=[1000, 10_000, 100_000], help="target images")
    add("--seeds", type=int, nargs="+", default=[0], help="random seeds (0)")
    add("--work", type=Path, help="folder for images and runs, which are removed")
    options = parser.parse_args(arguments)
    results = []
    for images in options.images:
        for seed in options.seeds:
            results.append(measure(options.work, images, seed))
            print(json.dumps(results[-1]), flush=True)
    show(results)
    largest = [of for of in results if of["images"] == max(options.images)]
    off = max(abs(of["k_star"] - of["k_true"]) / of["k_true"] for of in largest)
    return exit_code(
        [
            Answer("scale_seconds", max(of["wall_seconds"] for of in largest), MOST_SECONDS),
            Answer("scale_gb", max(of["peak_gb"] for of in largest), MOST_GB),
            Answer("scale_k", off, MOST_OFF),
        ]
    )


if __name__ == "__main__":
    sys.exit(main())
