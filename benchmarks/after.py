"""Measure what a training after an earlier one keeps: ids, names, accuracy and time.

    python -m benchmarks.after --root DIR --out FILE.jsonl --work DIR [--seeds N] [--protocols P …]
        [--tasks TASK …] [--cache DIR] [--times]

The target of an Office-31 task is cut at random. Halves: train on the first, name its classes, and
train after it on the whole. Thirds: train on the first, then after it on the first two, then after
that on the whole. A discovered class is named by its majority: the true class of more than half of
its images; classes of one name are merged, also into a known class.

A named class is still there if a discovered class of the new model has its majority. It is kept if
the class with its id has that majority. A name is wrong if most images of its class, or more of
them than of any other kind, are of another class. Accuracy is the share of all target images that
are called by their true class: with the names carried over alone, once the other classes are named
too, and of a training from nothing that is named.

`--times` compares the time of a training from nothing, with an empty cache, with one after 90% of
the target.
"""

import argparse
import json
import shutil
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np

from benchmarks.open_set import results
from benchmarks.open_set.execute import say
from benchmarks.open_set.protocols import OFFICE31, PROTOCOLS, Lists
from benchmarks.open_set.results import Record
from benchmarks.speed.answers import Answer, exit_code
from scda.adapt.config import TrainConfig
from scda.adapt.data.job import Job
from scda.adapt.pipeline.run import train
from scda.adapt.runs.tables import read_discovery
from scda.adapt.runtime.progress import Reporter
from scda.models.bundle import Manifest, read_manifest
from scda.models.cache import user_cache
from scda.models.names import Names, read_names
from scda.models.naming import Naming, change_names

_TASKS = ("A-W", "D-A")
_CHAINS = {"halves": (1 / 2, 1), "thirds": (1 / 3, 2 / 3, 1)}


@dataclass(frozen=True)
class Task:
    """One task as folders: the source, and parts of the target."""

    lists: Lists
    class_names: tuple[str, ...]  # by true label
    root: Path
    seed: int
    cache: Path

    def job(self, name: str, share: float, after: Path | None) -> Job:
        """Return the training on the first part of the shuffled target."""
        target = self.root / f"target-{share:.3f}"
        order = np.random.default_rng(self.seed).permutation(len(self.lists.target))
        rows = order[: round(share * len(order))].tolist()
        _fill(target, {f"{row:05d}.jpg": self.lists.target[row] for row in rows})
        return Job(
            source=self.source,
            target=target,
            out=self.root / name,
            cache=self.cache,
            config=TrainConfig(seed=self.seed, after=str(after) if after else ""),
            resume=True,
        )

    @property
    def source(self) -> Path:
        """The folder of the source, made when it is first needed."""
        labelled = list(zip(self.lists.source, self.lists.labels, strict=True))
        _fill(
            self.root / "source",
            {f"{self.class_names[label]}/{path.name}": path for path, label in labelled},
        )
        return self.root / "source"


@dataclass(frozen=True)
class Outcome:
    """What a run predicts for its target, and what the images are."""

    manifest: Manifest
    names: Names
    truth: list[str]
    predicted: list[str]  # class ids

    @property
    def majorities(self) -> dict[str, str]:
        """Discovered class → true class of more than half of its images."""
        return {i: of for i, (of, share) in self.most.items() if share > 1 / 2}

    @property
    def most(self) -> dict[str, tuple[str, float]]:
        """Discovered class → most frequent true class of its images, and its share."""
        counts: dict[str, Counter[str]] = {}
        for class_id, true in zip(self.predicted, self.truth, strict=True):
            if class_id.startswith("discovered-"):
                counts.setdefault(class_id, Counter())[true] += 1
        top = {class_id: of.most_common(1)[0] for class_id, of in counts.items()}
        return {
            class_id: (name, n / counts[class_id].total()) for class_id, (name, n) in top.items()
        }

    def called(self, class_id: str) -> str:
        """Return what a class is called."""
        naming = Naming(self.manifest.classes)
        answer = self.names.resolve(class_id)
        return naming.label(self.names, answer) if answer in naming.class_ids else answer

    @property
    def accuracy(self) -> float:
        """Share of images that are called by their true class, in percent."""
        calls = {class_id: self.called(class_id) for class_id in self.manifest.class_ids}
        right = [calls[p] == t for p, t in zip(self.predicted, self.truth, strict=True)]
        return 100 * float(np.mean(right))


def outcome(run: Path, task: Task) -> Outcome:
    """Return what a finished run predicts, under its current names."""
    rows = read_discovery(run / "discovery.csv")
    truth = [task.class_names[task.lists.truth[int(Path(row.path).stem)]] for row in rows]
    manifest = read_manifest(run / "bundle")
    names = read_names(run / "bundle", manifest)
    return Outcome(manifest, names, truth, [row.cluster for row in rows])


def name_by_majority(run: Path, task: Task) -> Outcome:
    """Name the classes that nobody has named, and return the outcome under these names."""
    found = outcome(run, task)

    def change(naming: Naming, names: Names) -> Names:
        active = [i for i in naming.class_ids if names.resolve(i) == i]
        holders = {naming.label(names, i): i for i in active}
        for class_id in active:
            label = found.majorities.get(class_id)
            if label is None or class_id in names.labels or holders.get(label) == class_id:
                continue
            if label in holders:
                names = naming.merge(names, [holders[label], class_id])
            else:
                names, holders[label] = naming.name(names, class_id, label), class_id
        return names

    return replace(found, names=change_names(run / "bundle", change))


def compared(before: Outcome, after: Outcome) -> Record:
    """Return what a training after a named one has kept."""
    there = set(after.majorities.values())
    named = {i: label for i, label in before.names.labels.items() if i.startswith("discovered-")}
    still = {class_id for class_id, label in named.items() if label in there}
    kept = {i for i in still if after.majorities.get(i) == named[i] == after.called(i)}
    calls = {i: after.called(i) for i in after.most}
    carried = {i: label for i, label in calls.items() if label != i}
    return {
        "named": len(named),
        "still": len(still),
        "kept": len(kept),
        "carried": len(carried),
        "wrong": sum(after.majorities.get(i, label) != label for i, label in carried.items()),
        "wrong_most": sum(after.most[i][0] != label for i, label in carried.items()),
        "became": dict(Counter(str(fate.became) for fate in _fates(after))),
        "accuracy_carried": round(after.accuracy, 2),
    }


def measure(task: Task) -> Iterator[Record]:
    """Yield a record for every step of both chains."""
    fresh = task.root / "fresh"
    _train(task.job("fresh", 1, None))
    from_nothing = name_by_majority(fresh, task).accuracy
    for chain, shares in _CHAINS.items():
        earlier: Path | None = None
        before: Outcome | None = None
        for step, share in enumerate(shares):
            job = task.job(f"{chain}-{step}", share, earlier)
            _train(job)
            if before:
                record = {"chain": chain, "step": step, **compared(before, outcome(job.out, task))}
            before, earlier = name_by_majority(job.out, task), job.out
            if step:
                whole = {"accuracy_from_nothing": round(from_nothing, 2)} if share == 1 else {}
                yield {**record, "accuracy_named": round(before.accuracy, 2), **whole}


def measure_times(task: Task) -> Record:
    """Return the seconds of a training from nothing, and after one on 90% of the target."""
    old, new = (task.job(name, share, None) for name, share in (("old", 0.9), ("fresh", 1)))
    _train(old)
    after = _train(task.job("after", 1, old.out))
    fresh = _train(replace(new, cache=task.root / "empty-cache"))
    return {"seconds_after": after.run["seconds"], "seconds_fresh": fresh.run["seconds"]}


def _fates(found: Outcome) -> Sequence[Any]:
    return found.manifest.previous.classes if found.manifest.previous else ()


def _train(job: Job) -> Manifest:
    with Reporter(quiet=True) as reporter:
        trained = train(job, reporter)
    assert trained
    return trained.manifest


def _fill(folder: Path, files: dict[str, Path]) -> None:
    """Link files into a folder, unless they are there."""
    for name, path in files.items():
        place = folder / name
        if not place.exists():
            place.parent.mkdir(parents=True, exist_ok=True)
            place.symlink_to(path.resolve())


def _tables(records: Sequence[Record]) -> list[Answer]:
    """Print a row per chain and task, and return the answers."""
    print(
        "| protocol, task | chain, step | named | still there | kept | wrong | accuracy: carried | "
        "named | from nothing |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    keys = sorted({(r["protocol"], r["task"], r["chain"], r["step"]) for r in records})
    for key in keys:
        of = [r for r in records if (r["protocol"], r["task"], r["chain"], r["step"]) == key]
        sums = [sum(r[name] for r in of) for name in ("named", "still", "kept", "wrong")]
        means = [
            f"{mean(r[name] for r in of):.1f}" if name in of[0] else ""
            for name in ("accuracy_carried", "accuracy_named", "accuracy_from_nothing")
        ]
        cells = [f"{key[0]}, {key[1]}", f"{key[2]}, {key[3]}", *map(str, sums), *means]
        print(f"| {' | '.join(cells)} |")
    still, kept, wrong = (sum(r[name] for r in records) for name in ("still", "kept", "wrong"))
    last = [r for r in records if "accuracy_from_nothing" in r]
    gain = mean(r["accuracy_named"] for r in last) / mean(r["accuracy_from_nothing"] for r in last)
    print(
        f"\nkept {kept} of {still}, wrong {wrong}, by plurality "
        f"{sum(r['wrong_most'] for r in records)} of {sum(r['carried'] for r in records)}"
    )
    return [
        Answer("after_kept", kept / still, 0.95, at_least=True),
        Answer("after_wrong", wrong, 0, at_least=False),
        Answer("after_accuracy", gain, 1, at_least=True),
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Do the missing runs, print the table, and return the exit code."""
    options = _parser().parse_args(arguments)
    done = results.read(options.out)
    for seed in range(options.seeds):
        for protocol in options.protocols:
            for name in options.tasks:
                key = {"protocol": protocol, "task": name, "seed": seed, "times": options.times}
                if any(all(r[k] == v for k, v in key.items()) for r in done):
                    continue
                classes = PROTOCOLS[protocol]
                task = Task(
                    OFFICE31.lists(options.root, protocol, name),
                    (*sorted(classes.known), *classes.implicit),
                    options.work / f"{protocol}-{name}-{seed}",
                    seed,
                    options.cache,
                )
                found = [measure_times(task)] if options.times else list(measure(task))
                for record in found:
                    results.append(options.out, {**key, **record})
                    say(json.dumps({**key, **record}))
                shutil.rmtree(task.root)
    records = [r for r in results.read(options.out) if r["times"] == options.times]
    if not options.times:
        return exit_code(_tables(records))
    ratio = [r["seconds_after"] / r["seconds_fresh"] for r in records]
    print(f"after 90% of the target: {mean(ratio):.2f} of the time of a training from nothing")
    return exit_code([Answer("after_time", mean(ratio), 0.5, at_least=False)])


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    add = parser.add_argument
    add("--root", type=Path, required=True, help="Office-31: amazon, dslr and webcam")
    add("--out", type=Path, required=True, help="results, one JSON object per step; appended to")
    add("--work", type=Path, required=True, help="folder for links and runs, which are removed")
    add("--seeds", type=int, default=1, help="cuts of each target, seeds 0, 1, … (1)")
    add("--protocols", nargs="+", default=list(PROTOCOLS), choices=list(PROTOCOLS))
    add("--tasks", nargs="+", default=list(_TASKS), choices=OFFICE31.tasks, metavar="TASK")
    add("--cache", type=Path, default=user_cache() / "features", help="folder of cached features")
    add("--times", action="store_true", help="measure the time instead")
    return parser


if __name__ == "__main__":
    sys.exit(main())
