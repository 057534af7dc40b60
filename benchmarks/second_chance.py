"""Measure what helps where the domains lie far apart: other backbones, or a few labels.

    python -m benchmarks.second_chance --data DIR --out FILE.jsonl [--tasks PATTERN …] [--seeds N]
        [--labels N] [--list FILE] [--cache DIR] [--jobs N]

Runs every task with `robust`, with another backbone, and with the preset `accurate`; with the two
presets also after a person has labelled a few images of the target. These images are chosen
without a label, one in each of N clusters; those of known classes are put into the source folder,
which makes them labelled images of the target, and if there are others, `--novel yes` says so. All
runs of a backbone are scored without them. Appends to the file, and skips what it already contains.
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.spatial.distance import cdist
from threadpoolctl import threadpool_limits

from benchmarks.open_set import results, runs
from benchmarks.open_set.aggregate import grouped, markdown, over_tasks, plain
from benchmarks.open_set.execute import features_of, records_of, say
from benchmarks.open_set.results import Record
from benchmarks.open_set.runs import Inputs, Run, Trained
from benchmarks.suite import chosen
from benchmarks.suites.summary import figure, group_of
from benchmarks.suites.tasks import DEVELOPMENT, Task, read_tasks
from scda.adapt.config_file import resolve
from scda.adapt.data.dataset import Labelled
from scda.adapt.data.shared import Shared
from scda.adapt.discovery.kmeans import cluster
from scda.models.cache import user_cache
from scda.models.errors import ScdaError, UsageError
from scda.models.index import Features, Ids, normalised

_RESTARTS = 4
_FAR = ("pacs-sketch-*", "pacs-cartoon-*", "pacs-art-*")
_CHANGES: dict[str, dict[str, Any]] = {
    "robust": {},
    "lite2": {"backbone": "lite2"},
    "accurate": {"preset": "accurate"},
}
_LABELLED = ("robust", "accurate")


def main(arguments: Sequence[str] | None = None) -> int:
    """Do the missing runs, print the table, and return the exit code."""
    options = _parser().parse_args(arguments)
    try:
        _measure(options)
    except ScdaError as error:
        print(f"second_chance: {error}", file=sys.stderr)
        return error.exit_code
    return 0


def _measure(options: argparse.Namespace) -> None:
    if min(options.seeds, options.jobs, options.labels) < 1:
        raise UsageError("expected 1 or more seeds, jobs and labels")
    tasks = chosen(read_tasks(options.list), options.tasks, [])
    wanted: list[results.Key] = []
    for name, changes in _CHANGES.items():
        plans = {
            labels: _plan(tasks, options, name, changes, labels)
            for labels in (0, options.labels)[: 2 if name in _LABELLED else 1]
        }
        wanted += [results.key(run.name) for plan in plans.values() for run in plan]
        done = {results.key(record) for record in results.read(options.out)}
        plans = {
            labels: [run for run in plan if results.key(run.name) not in done]
            for labels, plan in plans.items()
        }
        features = features_of([run for plan in plans.values() for run in plan], options.cache)
        for labels, plan in plans.items():
            work = partial(measure, count=options.labels, joins=labels > 0)
            for record in records_of(plan, features, work, options.jobs):
                results.append(options.out, record)
                say(f"{record['variant']}, {record['task']}: {figure(record):.1f}")
    by_key = {results.key(record): record for record in results.read(options.out)}
    print(table([by_key[key] for key in wanted]))


def _plan(
    tasks: Sequence[Task],
    options: argparse.Namespace,
    name: str,
    changes: Mapping[str, Any],
    labels: int,
) -> list[Run]:
    variant = f"{name}, {labels} labelled" if labels else name
    planned = []
    for seed in range(options.seeds):
        config = resolve({"preset": "robust", "seed": seed, **changes})
        for task in tasks:
            fields = {"protocol": options.list.stem, "study": "second chance", "variant": variant}
            fields |= {"task": task.name, "family": task.family, "kind": task.kind}
            planned.append(Run(runs.name(config, **fields), task.lists(options.data), config))
    return planned


def measure(run: Run, inputs: Inputs, *, count: int, joins: bool) -> Record:
    """Return the record of a run, scored without the images that a person would label.

    Args:
        run: Run to do.
        inputs: Features of both domains.
        count: Number of images that a person labels.
        joins: Whether those of known classes are put into the source, and others set `novel`.
    """
    truth, num_known, config = np.array(run.lists.truth), run.lists.num_known, run.config
    with threadpool_limits(1):
        rows = representatives(inputs.target.numpy(), count, seed=run.config.seed)
        if joins:
            known = truth[rows] < num_known
            inputs = with_labels(inputs, rows[known], truth)
            config = config if known.all() else replace(config, novel="yes")
        trained = runs.train(inputs, config)
    others = np.setdiff1d(np.arange(len(truth)), rows)
    return {**run.name, **runs.scores(_of_rows(trained, others), truth[others], num_known)}


def representatives(features: Features, count: int, *, seed: int) -> Ids:
    """Return the image next to the centre of each of `count` clusters, without a label.

    Args:
        features: Backbone features of the target, (N, D_backbone).
        count: Number of clusters; fewer if there are fewer distinct images.
        seed: Seed of k-means.

    Returns:
        Rows of the features, sorted, at most `count`.
    """
    points = normalised(features)
    points = normalised(points - points.mean(axis=0))
    count = min(count, len(np.unique(points, axis=0)))
    centroids = cluster(points, count, restarts=_RESTARTS, seed=seed).centroids
    return np.unique(cdist(points, centroids).argmin(axis=0))


def with_labels(inputs: Inputs, rows: Ids, truth: Ids) -> Inputs:
    """Return the inputs with images that both domains hold: labelled images of the target.

    Args:
        inputs: Features of both domains.
        rows: Rows of the labelled images in the target, (S,).
        truth: Class of every target image, (M,); those of the rows are known ones.
    """
    before = len(inputs.source.labels)
    labels = torch.from_numpy(truth[rows]).to(inputs.source.labels.dtype)
    source = Labelled(
        torch.cat([inputs.source.features, inputs.target[rows]]),
        torch.cat([inputs.source.labels, labels]),
    )
    given = np.full(len(truth), -1)
    given[rows] = truth[rows]
    shared = Shared(before + np.arange(len(rows)), rows, given) if len(rows) else None
    return replace(inputs, source=source, shared=shared)


def _of_rows(trained: Trained, rows: Ids) -> Trained:
    return replace(
        trained,
        probabilities=trained.probabilities[rows],
        features=trained.features[rows],
        rounds=[labels[rows] for labels in trained.rounds],
    )


def table(records: Sequence[Record]) -> str:
    """Return a row per variant: the mean over tasks of every group, and over all tasks."""
    figured = [
        {**record, "figure": figure(record), "group": group_of(record)} for record in records
    ]
    groups = list(grouped(figured, "group"))
    rows = []
    for variant, members in grouped(figured, "variant").items():
        of_group = grouped(members, "group")
        cells = [plain(over_tasks(of_group[group], "figure")) for group in groups]
        rows.append([variant, *cells, plain(over_tasks(members, "figure"))])
    return markdown(["variant", *groups, "mean over tasks"], rows)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    add = parser.add_argument
    add("--data", type=Path, required=True, help="folder that the list's folders are in")
    add("--out", type=Path, required=True, help="results, one JSON object per run; appended to")
    add("--list", type=Path, default=DEVELOPMENT, help="list of tasks (the development suite)")
    add("--tasks", nargs="+", default=_FAR, help="names or patterns (photos to other styles)")
    add("--labels", type=int, default=20, help="number of images that a person labels (20)")
    add("--seeds", type=int, default=1, help="runs of each task, seeds 0, 1, … (1)")
    add("--cache", type=Path, default=user_cache() / "features", help="folder of cached features")
    add("--jobs", type=int, default=1, help="processes of one thread each (1)")
    return parser


if __name__ == "__main__":
    sys.exit(main())
