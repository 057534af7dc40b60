"""Measure whether labels of picked images help more than those of as many random ones.

    python -m benchmarks.pick --data DIR --out FILE.jsonl [--tasks PATTERN …] [--budgets N …]
        [--seeds N] [--list FILE] [--cache DIR] [--jobs N]

Trains every task once; then, for every budget, a person labels as many images of the target, picked
as `scda-adapt pick` does, or at random, and the task is trained anew with them in the source. A new
class of which an image is labelled becomes a known one. Both are scored on the same images, those
that neither of the two was given. Appends to the file, and skips what it already contains.
"""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
import torch
from threadpoolctl import threadpool_limits

from benchmarks.open_set import results, runs
from benchmarks.open_set.aggregate import grouped, markdown, over_tasks
from benchmarks.open_set.execute import features_of, records_of, say
from benchmarks.open_set.results import Record
from benchmarks.open_set.runs import Inputs, Run
from benchmarks.suite import chosen
from benchmarks.suites.summary import MISSING, group_of
from benchmarks.suites.tasks import DEVELOPMENT, Task, read_tasks
from scda.adapt.config_file import resolve
from scda.adapt.data.dataset import Labelled
from scda.adapt.data.shared import Shared
from scda.adapt.discovery.selection import entropy
from scda.adapt.evaluation.metrics import Labels, acc_joint
from scda.adapt.picking.selection import choose
from scda.models.cache import user_cache
from scda.models.errors import ScdaError, UsageError
from scda.models.index import Ids

_BUDGETS = (5, 10, 20, 40, 80)


def main(arguments: Sequence[str] | None = None) -> int:
    """Do the missing runs, print the table, and return the exit code."""
    options = _parser().parse_args(arguments)
    try:
        _measure(options)
    except ScdaError as error:
        print(f"pick: {error}", file=sys.stderr)
        return error.exit_code
    return 0


def _measure(options: argparse.Namespace) -> None:
    if min(options.seeds, options.jobs, *options.budgets) < 1:
        raise UsageError("expected 1 or more seeds, jobs and labels")
    tasks = chosen(read_tasks(options.list), options.tasks, [])
    plan = [_run(task, options, seed) for seed in range(options.seeds) for task in first(tasks)]
    done = {results.key(record) for record in results.read(options.out)}
    missing = [run for run in plan if results.key(run.name) not in done]
    work = partial(measure, budgets=tuple(options.budgets))
    for record in records_of(missing, features_of(missing, options.cache), work, options.jobs):
        results.append(options.out, record)
        say(f"{record['task']}: {record['acc_joint']} {record['picked']} {record['random']}")
    by_key = {results.key(record): record for record in results.read(options.out)}
    print(table([by_key[results.key(run.name)] for run in plan]))


def first(tasks: Sequence[Task]) -> list[Task]:
    """Return the first task of every group; those with missing classes are none of them."""
    of_group: dict[str, Task] = {}
    for task in tasks:
        if task.kind != MISSING:
            of_group.setdefault(group_of({"family": task.family, "kind": task.kind}), task)
    return list(of_group.values())


def _run(task: Task, options: argparse.Namespace, seed: int) -> Run:
    config = resolve({"preset": "robust", "seed": seed})
    budgets = ", ".join(map(str, options.budgets))
    fields = {"protocol": options.list.stem, "study": "pick", "variant": budgets}
    fields |= {"task": task.name, "family": task.family, "kind": task.kind}
    return Run(runs.name(config, **fields), task.lists(options.data), config)


def measure(run: Run, inputs: Inputs, *, budgets: Sequence[int]) -> Record:
    """Return `acc_joint` in percent without labels, and by budget with picked and random ones."""
    truth, seed = np.array(run.lists.truth), run.config.seed
    scores: dict[str, list[float]] = {"before": [], "picked": [], "random": []}
    with threadpool_limits(1):
        trained = runs.train(inputs, run.config)
        logits = np.log(np.maximum(trained.probabilities, np.finfo(np.float32).tiny))
        uncertain = entropy(logits)
        for budget in budgets:
            picked = choose(trained.features, uncertain, budget, seed=seed)
            others = np.random.default_rng([seed, budget]).permutation(len(truth))[: len(picked)]
            scored = np.setdiff1d(np.arange(len(truth)), np.union1d(picked, others))
            before = trained.probabilities.shape[1]
            scores["before"].append(_percent(truth, trained.rounds[-1], scored, before))
            for name, rows in (("picked", picked), ("random", others)):
                scores[name].append(_with_labels(run, inputs, truth, rows, scored))
    whole = np.arange(len(truth))
    alone = _percent(truth, trained.rounds[-1], whole, trained.probabilities.shape[1])
    return {**run.name, "acc_joint": alone, **scores}


def _with_labels(run: Run, inputs: Inputs, truth: Labels, rows: Ids, scored: Ids) -> float:
    """Return `acc_joint` of a training with the labels of these rows, in percent."""
    known = run.lists.num_known
    new = np.setdiff1d(truth[rows], np.arange(known))  # they become the classes after the known
    rest = np.setdiff1d(truth, np.concatenate([np.arange(known), new]))
    numbers = {label: number for number, label in enumerate([*range(known), *new, *rest])}
    renumbered = np.array([numbers[label] for label in truth.tolist()])
    labels = torch.from_numpy(renumbered[rows]).to(inputs.source.labels.dtype)
    source = Labelled(
        torch.cat([inputs.source.features, inputs.target[rows]]),
        torch.cat([inputs.source.labels, labels]),
    )
    both = np.arange(len(rows)) + len(inputs.source.labels)
    given = np.full(len(truth), -1)
    given[rows] = renumbered[rows]
    shared = Shared(both, rows, given)
    trained = runs.train(replace(inputs, source=source, shared=shared), run.config)
    outputs = trained.probabilities.shape[1]
    return _percent(renumbered, trained.rounds[-1], scored, outputs)


def _percent(truth: Labels, predicted: Labels, rows: Ids, outputs: int) -> float:
    return runs.percent(acc_joint(truth[rows], predicted[rows], outputs))


def table(records: Sequence[Record]) -> str:
    """Return a row per group and budget: before, with random and with picked labels."""
    budgets = [int(text) for text in str(records[0]["variant"]).split(", ")]
    flat: list[Record] = [
        {
            "group": group_of(record),
            "task": record["task"],
            **{
                f"{name} {budget}": record[name][number]
                for name in ("before", "random", "picked")
                for number, budget in enumerate(budgets)
            },
        }
        for record in records
    ]
    groups = grouped(flat, "group")

    def row(name: str, value: Any) -> list[str]:
        cells = []
        for budget in budgets:
            before, random, picked = (
                value(f"{w} {budget}") for w in ("before", "random", "picked")
            )
            cells += [f"{before:.1f}", f"{random:.1f}", f"{picked:.1f} ({picked - random:+.1f})"]
        return [name, *cells]

    means = {name: partial(over_tasks, members) for name, members in groups.items()}
    rows = [row(name, of) for name, of in means.items()]
    rows.append(row("mean of groups", lambda field: mean(of(field) for of in means.values())))
    header = [f"{name} {n}" for n in budgets for name in ("before", "random", "picked")]
    return markdown(["group", *header], rows)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    add = parser.add_argument
    add("--data", type=Path, required=True, help="folder that the list's folders are in")
    add("--out", type=Path, required=True, help="results, one JSON object per run; appended to")
    add("--list", type=Path, default=DEVELOPMENT, help="list of tasks (the development suite)")
    add("--tasks", nargs="+", default=[], help="names or patterns (the first task of each group)")
    add("--budgets", nargs="+", type=int, default=_BUDGETS, help="numbers of labels (5 to 80)")
    add("--seeds", type=int, default=1, help="runs of each task, seeds 0, 1, … (1)")
    add("--cache", type=Path, default=user_cache() / "features", help="folder of cached features")
    add("--jobs", type=int, default=1, help="processes of one thread each (1)")
    return parser


if __name__ == "__main__":
    sys.exit(main())
