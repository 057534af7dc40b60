"""Measure the false alarms of `scda-adapt drift`, and what it notices.

    python -m benchmarks.drift --data DIR --out FILE.jsonl [--tasks PATTERN …] [--seeds N]
        [--images N …] [--repeats N] [--cache DIR]

Half of the target is trained on, without one of the new classes; streams of images are drawn from
what the model never saw. Without a change the stream is of the other half; else it lacks the
largest class, holds the new class in 2, 5 or 10 of 100 images, is of the source, or of a third
domain with the same classes (where the suite has one). `itself` resamples the half that the model
was trained on. A record has the share of streams in which each test raises an alarm, compared with
what training stores, or with an earlier stream of 200 images (`--reference`).
"""

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits
from torch import Tensor

from benchmarks.open_set import results
from benchmarks.open_set.aggregate import grouped, markdown, over_tasks
from benchmarks.open_set.execute import features_of, say
from benchmarks.open_set.results import Record
from benchmarks.open_set.runs import Inputs, Run, inputs_of, name, one_thread
from benchmarks.suite import chosen
from benchmarks.suites.tasks import DEVELOPMENT, read_tasks
from scda.adapt.config_file import resolve
from scda.adapt.export.final_model import FinalModel, final_model
from scda.adapt.export.rehearsal import rehearse
from scda.adapt.training.algorithm import adapt
from scda.adapt.training.networks import infer
from scda.models.cache import user_cache
from scda.models.drift.compare import Reference, Sample, compare, reference_from
from scda.models.errors import ScdaError
from scda.models.index import Ids

_TESTS = ("any", "classes", "confidence", "distance", "outliers", "training")
_EARLIER = 200  # images of an earlier stream


def main(arguments: Sequence[str] | None = None) -> int:
    """Do the missing runs, print the tables, and return the exit code."""
    options = _parser().parse_args(arguments)
    try:
        _measure(options)
    except ScdaError as error:
        print(f"drift: {error}", file=sys.stderr)
        return error.exit_code
    print(table(results.read(options.out)))
    return 0


def _measure(options: argparse.Namespace) -> None:
    done = {results.key(record) for record in results.read(options.out)}
    planned = []
    for seed in range(options.seeds):
        config = resolve({"preset": "robust", "seed": seed})
        for task in chosen(read_tasks(DEVELOPMENT), options.tasks, []):
            of_run = {"protocol": "development", "study": "drift", "task": task.name}
            planned.append(Run(name(config, **of_run), task.lists(options.data), config))
    missing = [
        run
        for run in planned
        if results.key({**run.name, "variant": f"none, stored, {options.images[0]}"}) not in done
    ]
    others = {run.name["task"]: third_domain(run, options.data) for run in missing}
    computed = features_of([*missing, *filter(None, others.values())], options.cache)
    one_thread()
    for run in missing:
        other = others[run.name["task"]]
        third = inputs_of(other.lists, computed.features).target if other else None
        with threadpool_limits(1):
            inputs = computed.inputs(run)
            for record in measure(run, inputs, third, options.images, options.repeats):
                results.append(options.out, record)
        say(f"{run.name['task']}, seed {run.name['seed']}")


@dataclass(frozen=True)
class Answers:
    """The answers of a model for images."""

    classes: Ids  # (N,)
    confidence: NDArray[np.float32]  # (N,)
    distance: NDArray[np.float32]  # (N,), to the nearest centroid
    outlier: NDArray[np.bool_]  # (N,)

    def sample(self, rows: Ids) -> Sample:
        """Return the stream of some of the images."""
        found = Sample()
        for row in rows.tolist():
            found.add(
                str(self.classes[row]),
                outlier=bool(self.outlier[row]),
                confidence=float(self.confidence[row]),
                distance=float(self.distance[row]),
            )
        return found


def third_domain(run: Run, data: Path) -> Run | None:
    """Return a run with the same classes and source, and another target; None if there is none."""
    tasks = read_tasks(DEVELOPMENT)
    own = next(task for task in tasks if task.name == run.name["task"])
    for task in tasks:
        same = (task.source, task.known, task.new) == (own.source, own.known, own.new)
        if same and task.target != own.target:
            return Run(run.name, task.lists(data), run.config)
    return None


def measure(
    run: Run, inputs: Inputs, third: Tensor | None, sizes: Sequence[int], repeats: int
) -> Iterator[Record]:
    """Yield a record for every change, reference and size of a stream."""
    truth, num_known = np.array(run.lists.truth), run.lists.num_known
    rng = np.random.default_rng(run.config.seed)
    added = int(rng.choice(np.unique(truth[truth >= num_known])))
    usual = rng.permutation(np.flatnonzero(truth != added))
    seen, unseen = usual[::2], usual[1::2]
    target = inputs.target[torch.from_numpy(seen)]
    final = final_model(
        adapt(inputs.source, target, run.config, classifier=inputs.classifier),
        list(map(str, range(num_known))),
    )
    rehearsal = rehearse(inputs.source, target, run.config, inputs.classifier)
    of_target, of_source = answers(final, inputs.target), answers(final, inputs.source.features)
    counts = {str(label): int(n) for label, n in enumerate(np.bincount(final.predicted))}
    stored = Reference(classes=counts)
    if rehearsal:
        held_out = rehearsal.figures
        stored = Reference(
            classes=counts,
            outliers=(held_out.outliers, held_out.images),
            distance=held_out.distance,
        )
    largest = np.bincount(truth[unseen]).argmax()
    of_added = np.flatnonzero(truth == added)
    for size in sizes:
        streams = {
            "none": (of_target, unseen, None, 0.0),
            "itself": (of_target, seen, None, 0.0),
            "class vanished": (of_target, unseen[truth[unseen] != largest], None, 0.0),
            **{
                f"new class {share:.0%}": (of_target, unseen, of_added, share)
                for share in (0.02, 0.05, 0.1)
            },
            "the source": (of_source, np.arange(len(of_source.classes)), None, 0.0),
        }
        if third is not None:
            streams["another domain"] = (answers(final, third), np.arange(len(third)), None, 0.0)
        for change, (of, rows, others, share) in streams.items():
            for kind in ("stored",) if change == "itself" else ("stored", "earlier"):
                alarms = []
                for _ in range(repeats):
                    reference, left = stored, rows
                    if kind == "earlier":
                        before = rng.permutation(unseen)[:_EARLIER]
                        reference = reference_from(of_target.sample(before))
                        left = np.setdiff1d(rows, before) if of is of_target else rows
                    if (stream := drawn(left, others, share, size, rng)) is not None:
                        alarms.append(raised(reference, of.sample(stream)))
                if alarms:
                    shares = {t: 100 * float(np.mean([a[t] for a in alarms])) for t in _TESTS}
                    fields = {"change": change, "reference": kind, "images": size}
                    variant = f"{change}, {kind}, {size}"
                    yield {**run.name, **fields, "variant": variant, **shares}


def answers(final: FinalModel, features: Tensor) -> Answers:
    """Return the answers for backbone features (N, D_backbone)."""
    logits, found = infer(final.networks, features)
    probabilities, distances = logits.softmax(dim=1).numpy(), final.distances_of(found.numpy())
    return Answers(
        probabilities.argmax(axis=1),
        probabilities.max(axis=1),
        distances.min(axis=1),
        final.are_outliers(distances),
    )


def drawn(
    rows: Ids, others: Ids | None, share: float, size: int, rng: np.random.Generator
) -> Ids | None:
    """Return the images of a stream, each at most once; None if there are not enough."""
    of_others = round(share * size)
    if len(rows) < size - of_others or (others is not None and len(others) < of_others):
        return None
    usual = rng.choice(rows, size - of_others, replace=False)
    return usual if others is None else np.append(usual, rng.choice(others, of_others, False))


def raised(reference: Reference, stream: Sample) -> Mapping[str, bool]:
    """Return which tests raise an alarm."""
    found = compare(reference, stream)
    of_tests = {test: test in found.changed for test in _TESTS[1:-1]}
    return {"any": bool(found.changed), **of_tests, "training": found.training_due}


def table(records: Sequence[Record]) -> str:
    """Return the share of streams with an alarm, by reference, size and change: mean over tasks."""
    rows = []
    for variant, members in grouped(records, "variant").items():
        shares = [f"{over_tasks(members, test):.1f}" for test in _TESTS]
        change, reference, images = variant.split(", ")
        rows.append([reference, images, change, str(len(grouped(members, "task"))), *shares])
    header = ["reference", "images", "change", "tasks", *_TESTS]
    return markdown(header, sorted(rows, key=lambda row: (row[0], int(row[1]))))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    add = parser.add_argument
    add("--data", type=Path, required=True, help="folder that the suite's folders are in")
    add("--out", type=Path, required=True, help="results, one JSON object per line; appended to")
    add("--tasks", nargs="+", default=["*-half"], help="names or patterns (those with half new)")
    add("--seeds", type=int, default=1, help="runs of each task, seeds 0, 1, … (1)")
    add("--images", type=int, nargs="+", default=[200], help="images of a stream (200)")
    add("--repeats", type=int, default=100, help="streams of each kind (100)")
    add("--cache", type=Path, default=user_cache() / "features", help="folder of cached features")
    return parser


if __name__ == "__main__":
    sys.exit(main())
