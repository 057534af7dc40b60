"""Measure what a training after an earlier one keeps: ids, names, accuracy and time.

    python -m benchmarks.after --root DIR --out FILE.jsonl [--seeds N] [--protocols P …]
        [--tasks TASK …] [--cache DIR] [--times DIR]

The target of an Office-31 task is cut at random. Halves: train on the first, name its classes, and
train after it on the whole. Thirds: train on the first, then after it on the first two, then after
that on the whole. A discovered class is named by its majority: the true class of more than half of
its images; classes of one name are merged, also into a known class.

A named class is still there if a discovered class of the new model has its majority. It is kept if
the class with its id has that majority. A name is wrong if most images of its class are of another
one. Accuracy is the share of all target images that are called by their true class: with the names
carried over alone, once the other classes are named too, and of a training from nothing that is
named; and the same over the true classes that a carried name stands for.

`--times` compares the time of a training from nothing, with an empty cache, with one after 90% of
the target, through the whole of `train`.
"""

import argparse
import json
import resource
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import mean

from threadpoolctl import threadpool_limits

from benchmarks.continuity.chain import Task, trained
from benchmarks.continuity.outcomes import compared, unnamed
from benchmarks.open_set import results
from benchmarks.open_set.execute import Computed, features_of, say
from benchmarks.open_set.protocols import OFFICE31, PROTOCOLS
from benchmarks.open_set.results import Record
from benchmarks.open_set.runs import Run, one_thread
from benchmarks.speed.answers import Answer, exit_code
from scda.adapt.config import TrainConfig
from scda.adapt.data.job import Job
from scda.adapt.pipeline.run import train
from scda.adapt.runtime.progress import Reporter
from scda.models.cache import user_cache

_TASKS = ("A-W", "D-A")
_CHAINS = {"halves": (1 / 2, 1), "thirds": (1 / 3, 2 / 3, 1)}


def measure(task: Task) -> Iterator[Record]:
    """Yield a record for every step of both chains."""
    fresh = trained(task, 1).named
    for chain, shares in _CHAINS.items():
        before = trained(task, shares[0])
        for number, share in enumerate(shares[1:], 1):
            step = trained(task, share, before)
            carried, named = step.outcome, step.named
            record = {"chain": chain, "step": number, **compared(before.named, carried)}
            record |= {"accuracy_named": round(named.accuracy(), 2), **unnamed(carried, named)}
            if share == 1:
                record |= {
                    "accuracy_from_nothing": round(fresh.accuracy(), 2),
                    "acc_named_carried": round(carried.accuracy(carried.named), 2),
                    "acc_named_from_nothing": round(fresh.accuracy(carried.named), 2),
                }
            yield record
            before = step


def measure_times(task: Task, root: Path) -> Record:
    """Return the seconds of a training from nothing, and after one on 90% of the target.

    Those of the processor do without what other programs take. The first training fills the cache,
    and the one from nothing has an empty one.
    """
    _fill(
        root / "source",
        {
            f"{task.class_names[label]}/{path.name}": path
            for path, label in zip(task.lists.source, task.lists.labels, strict=True)
        },
    )
    for name, share in (("old", 0.9), ("new", 1)):
        _fill(root / name, {f"{row:05d}.jpg": task.lists.target[row] for row in task.rows(share)})
    _timed(_job(task, root, "old", "filled"))
    found = {
        "after": _timed(_job(task, root, "new", "filled", after=str(root / "run-old-filled"))),
        "fresh": _timed(_job(task, root, "new", "empty")),
        "again": _timed(_job(task, root, "new", "filled")),  # from nothing, with all features
    }
    return {f"{unit}_{name}": s for name, of in found.items() for unit, s in of.items()}


def _job(task: Task, root: Path, target: str, cache: str, after: str = "") -> Job:
    return Job(
        source=root / "source",
        target=root / target,
        out=root / f"run-{target}-{cache}{'-after' if after else ''}",
        cache=root / cache,
        config=TrainConfig(seed=task.seed, after=after),
    )


def _timed(job: Job) -> dict[str, float]:
    """Train, and return the seconds of the clock, and of the processors."""
    wall, cpu = time.monotonic(), _cpu_seconds()
    with Reporter(quiet=True) as reporter:
        train(job, reporter)
    wall, cpu = time.monotonic() - wall, _cpu_seconds() - cpu
    return {"seconds": round(wall, 1), "cpu_seconds": round(cpu, 1)}


def _cpu_seconds() -> float:
    """Return the processor time of this process and of those that it has waited for."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def _fill(folder: Path, files: dict[str, Path]) -> None:
    """Link files into a folder."""
    for name, path in files.items():
        place = folder / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to(path.resolve())


def _tables(records: Sequence[Record]) -> list[Answer]:
    """Print a row per chain and task, and return the answers."""
    print(
        "| protocol, task | chain, step | named | still there | kept | carried | wrong | accuracy: "
        "carried | named | from nothing | named classes: carried | from nothing |"
    )
    print(f"|{'---|' * 12}")
    keys = sorted({(r["protocol"], r["task"], r["chain"], r["step"]) for r in records})
    for key in keys:
        of = [r for r in records if (r["protocol"], r["task"], r["chain"], r["step"]) == key]
        counts = ("named", "still", "kept", "carried", "wrong")
        sums = [sum(r[name] for r in of) for name in counts]
        cells = [f"{key[0]}, {key[1]}", f"{key[2]}, {key[3]}", *map(str, sums)]
        print(f"| {' | '.join([*cells, *(_mean(of, name) for name in _ACCURACIES)])} |")
    last = [r for r in records if "accuracy_from_nothing" in r]
    print(f"\nsteps on the whole target: {', '.join(f'{n} {_mean(last, n)}' for n in _WHOLE)}")
    # Records of earlier versions do not have these.
    told, wrong_told = (sum(r.get(n, 0) for r in records) for n in ("to_confirm", "wrong_told"))
    print(f"to confirm: {told} of the carried names, {wrong_told} of the wrong ones")
    purities = [share for r in records for share in r["wrong_before"]]
    print(f"majority before of the classes whose names are wrong now: {purities}")
    still, kept, wrong = (sum(r[name] for r in records) for name in ("still", "kept", "wrong"))
    ratios = [
        mean(r[f"{name}_{ours}"] for r in last) / mean(r[f"{name}_from_nothing"] for r in last)
        for name, ours in (("accuracy", "named"), ("acc_named", "carried"))
    ]
    return [
        Answer("after_kept", kept / still, 0.95, at_least=True),
        Answer("after_wrong", wrong, 0, at_least=False),
        Answer("after_accuracy", ratios[0], 1, at_least=True),
        Answer("after_acc_named", ratios[1], 1, at_least=True),
    ]


_ACCURACIES = (
    *("accuracy_carried", "accuracy_named", "accuracy_from_nothing"),
    *("acc_named_carried", "acc_named_from_nothing"),
)
_WHOLE = (*_ACCURACIES, "new_name", "named_before")


def _mean(records: Sequence[Record], name: str) -> str:
    values = [record[name] for record in records if name in record]
    return f"{mean(values):.1f}" if values else ""


def _time_table(records: Sequence[Record]) -> list[Answer]:
    """Print the mean seconds of each training, and return the answers."""
    ratios = {}
    for unit in ("seconds", "cpu_seconds"):
        of = {n: mean(r[f"{unit}_{n}"] for r in records) for n in ("after", "fresh", "again")}
        print(f"{unit}: {', '.join(f'{name} {value:.0f}' for name, value in of.items())}")
        ratios[unit] = of["after"] / of["fresh"]
    return [Answer(f"after_{unit}", ratio, 0.5, at_least=False) for unit, ratio in ratios.items()]


def main(arguments: Sequence[str] | None = None) -> int:
    """Do the missing runs, print the table, and return the exit code."""
    options = _parser().parse_args(arguments)
    one_thread()
    is_timed = options.times is not None
    for seed in range(options.seeds):
        for protocol in options.protocols:
            for name in options.tasks:
                key = {"protocol": protocol, "task": name, "seed": seed, "times": is_timed}
                if any(key.items() <= r.items() for r in results.read(options.out)):
                    continue
                for record in _measured(options, protocol, name, seed):
                    results.append(options.out, {**key, **record})
                    say(json.dumps({**key, **record}))
    records = [r for r in results.read(options.out) if r["times"] == is_timed]
    return exit_code(_time_table(records) if is_timed else _tables(records))


def _measured(options: argparse.Namespace, protocol: str, name: str, seed: int) -> list[Record]:
    classes, lists = PROTOCOLS[protocol], OFFICE31.lists(options.root, protocol, name)
    names = (*sorted(classes.known), *classes.implicit)
    if options.times is not None:
        root = options.times / f"{protocol}-{name}-{seed}"
        found = [measure_times(Task(lists, Computed({}, root), names, seed), root)]
        shutil.rmtree(root)
        return found
    features = features_of([Run({}, lists, TrainConfig())], options.cache)
    with threadpool_limits(1):
        return list(measure(Task(lists, features, names, seed)))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    add = parser.add_argument
    add("--root", type=Path, required=True, help="Office-31: amazon, dslr and webcam")
    add("--out", type=Path, required=True, help="results, one JSON object per step; appended to")
    add("--seeds", type=int, default=1, help="cuts of each target, seeds 0, 1, … (1)")
    add("--protocols", nargs="+", default=list(PROTOCOLS), choices=list(PROTOCOLS))
    add("--tasks", nargs="+", default=list(_TASKS), choices=OFFICE31.tasks, metavar="TASK")
    add("--cache", type=Path, default=user_cache() / "features", help="folder of cached features")
    add("--times", type=Path, metavar="DIR", help="measure times instead, in a folder made for it")
    return parser


if __name__ == "__main__":
    sys.exit(main())
