"""Measure scda on a suite of open-set tasks: half of the classes are new, few, or none.

    python -m benchmarks.suite --data DIR --out FILE.jsonl [--seeds N] [--tasks PATTERN …]
        [--kinds KIND …] [--method NAME …] [--preset NAME] [--set OPTION=VALUE …] [--list FILE]
        [--thin skewed|even] [--leave-one-family-out] [--jobs N]

Appends one JSON object per task and seed to the file, skips those that it already contains, and
prints figures by group (family and kind). `--method` measures other methods on the same features,
and prints one column for each. `--leave-one-family-out` fits the constants of trust on all other
families, judges them on the one left out, and prints the constants of all. `--thin` keeps part of
each target, with classes of very unequal size or evenly. `--list` takes another list of tasks, for
your own folders; `benchmarks/suites/development.toml` is an example.
"""

import argparse
import dataclasses
import sys
import time
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.open_set import results, runs
from benchmarks.open_set.baselines import METHODS, measure_other
from benchmarks.open_set.execute import features_of, records_of, say
from benchmarks.open_set.protocols import Lists
from benchmarks.open_set.results import Record
from benchmarks.open_set.runs import Inputs, Run
from benchmarks.suites import trust
from benchmarks.suites.classes import judged_classes
from benchmarks.suites.comparison import OWN, comparison
from benchmarks.suites.summary import figure, summary
from benchmarks.suites.tasks import DEVELOPMENT, KINDS, Task, read_tasks
from benchmarks.suites.thinning import THINNINGS, thinned
from scda.adapt.config import TrainConfig
from scda.adapt.config_file import resolve
from scda.adapt.discovery.trust.measures import MEASURES
from scda.models.cache import user_cache
from scda.models.errors import ScdaError, UsageError

_COUNTS = 16  # values of k that are tried for another method; every k would double the time


def main(arguments: Sequence[str] | None = None) -> int:
    """Do the missing runs, print the summary, and return the exit code."""
    options = _parser().parse_args(arguments)
    try:
        _measure(options)
    except ScdaError as error:
        print(f"suite: {error}", file=sys.stderr)
        return error.exit_code
    return 0


def _measure(options: argparse.Namespace) -> None:
    if min(options.seeds, options.jobs) < 1:
        raise UsageError(
            f"expected 1 or more seeds and jobs, found {options.seeds} and {options.jobs}"
        )
    tasks = chosen(read_tasks(options.list), options.tasks, options.kinds)
    changes = changed(options.set)
    methods = list(dict.fromkeys(options.method))
    suite = Suite(options.list.stem, options.preset, changes, methods, options.thin)
    planned = plan(tasks, options.data, suite, options.seeds)
    done = {results.key(record) for record in results.read(options.out)}
    missing = [run for run in planned if results.key(run.name) not in done]
    say(f"{len(planned)} runs, {len(planned) - len(missing)} already in {options.out}")
    features = features_of(missing, options.cache)
    started = time.monotonic()
    for number, record in enumerate(records_of(missing, features, measure, options.jobs), 1):
        results.append(options.out, record)
        seconds = time.monotonic() - started
        say(f"{number} of {len(missing)}, {seconds:.0f} s: {_line(record)}")
    by_key = {results.key(record): record for record in results.read(options.out)}
    records = [by_key[results.key(run.name)] for run in planned]
    print(tables(records))
    if options.leave_one_family_out is not None:
        ours = [record for record in records if record["method"] == OWN]
        print(f"\n{trust.report(ours, options.leave_one_family_out)}")


@dataclass(frozen=True)
class Suite:
    """What is the same for all tasks and seeds."""

    name: str  # of the list
    preset: str
    changes: Mapping[str, Any]  # in the preset
    methods: Sequence[str] = (OWN,)
    thin: str | None = None  # how targets are made smaller

    @property
    def variant(self) -> str:
        """Return the changes as a text, `main` without any."""
        changes = [f"{name}={self.changes[name]}" for name in sorted(self.changes)]
        return " ".join([*changes, *([f"thin={self.thin}"] if self.thin else [])]) or "main"

    def lists(self, task: Task, data: Path, seed: int) -> Lists:
        """Return the images of a task."""
        lists = task.lists(data)
        return thinned(lists, self.thin, seed) if self.thin else lists


def plan(tasks: Sequence[Task], data: Path, suite: Suite, seeds: int) -> list[Run]:
    """Return all methods of the first task, then of the next one; then all with the next seed."""
    planned = []
    for seed in range(seeds):
        lists = {task.name: suite.lists(task, data, seed) for task in tasks}
        config = resolve({"preset": suite.preset, "seed": seed, **suite.changes})
        _check_frozen(config)
        for task in tasks:
            of_task = {"task": task.name, "family": task.family, "kind": task.kind}
            for method in suite.methods:
                fields = {"protocol": suite.name, "study": "suite", "variant": suite.variant}
                name = runs.name(config, **fields, **of_task, method=method)
                planned.append(Run(name, lists[task.name], config))
    return planned


def tables(records: Sequence[Record]) -> str:
    """Return the comparison if there are other methods, and the summary of scda."""
    ours = [record for record in records if record["method"] == OWN]
    parts = [comparison(records)] if len(ours) < len(records) else []
    return "\n\n".join([*parts, *([summary(ours)] if ours else [])])


def measure(run: Run, inputs: Inputs) -> Record:
    """Return the record of a run; the truth is read after training has ended."""
    if run.name["method"] != OWN:
        return measure_other(run, inputs, counts=_COUNTS)
    with threadpool_limits(1):
        trained = runs.train(inputs, run.config)
    truth, num_known = np.array(run.lists.truth), run.lists.num_known
    classes = judged_classes(trained.rounds[-1], trained.near, truth, num_known)
    return {**run.name, **runs.scores(trained, truth, num_known), "classes": classes}


def chosen(tasks: Sequence[Task], patterns: Sequence[str], kinds: Sequence[str]) -> list[Task]:
    """Return the tasks of the given kinds whose names match a pattern; empty selects all.

    Raises:
        UsageError: If a pattern matches no task, or no task is left.
    """
    for pattern in patterns:
        if not any(fnmatch(task.name, pattern) for task in tasks):
            raise UsageError(f"no task matches {pattern}; expected names such as {tasks[0].name}")
    left = [
        task
        for task in tasks
        if (not patterns or any(fnmatch(task.name, pattern) for pattern in patterns))
        and (not kinds or task.kind in kinds)
    ]
    if not left:
        raise UsageError(f"no task matches {' '.join(patterns)} and is of kind {' '.join(kinds)}")
    return left


def changed(settings: Sequence[str]) -> dict[str, Any]:
    """Return the options of `OPTION=VALUE` settings, with values of the option's type.

    Raises:
        UsageError: If a setting has no `=`, no such option exists, or the value is of another type.
    """
    types = {field.name: type(field.default) for field in dataclasses.fields(TrainConfig)}
    changes = {}
    for setting in settings:
        name, equals, text = setting.partition("=")
        if not equals or name not in types or name in ("preset", "seed"):
            raise UsageError(
                f"expected --set OPTION=VALUE with an option of train, found {setting!r}"
            )
        changes[name] = _value(setting, text, types[name])
    return changes


def _value(setting: str, text: str, expected: type) -> Any:
    if expected is str:
        return text
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        value = text
    if expected is tuple and isinstance(value, list):
        return tuple(value)
    if expected is float and type(value) is int:
        return float(value)
    if type(value) is not expected:
        raise UsageError(f"--set {setting}: expected {expected.__name__}, found {text!r}")
    return value


def _check_frozen(config: TrainConfig) -> None:
    if config.finetune != "none":
        raise UsageError(
            f"preset {config.preset} trains the backbone (finetune {config.finetune}); "
            "the suite works on frozen features: expected finetune none"
        )


def _line(record: Record) -> str:
    status = ", ".join(dict.fromkeys(record["status"]))
    return (
        f"{record['method']}, {record['task']}, seed {record['seed']}: {figure(record):.1f}, "
        f"k* {record['k_star']} of {record['k_true']}, {status}"
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    add = parser.add_argument
    add("--data", type=Path, required=True, help="folder that the list's folders are in")
    add("--out", type=Path, required=True, help="results, one JSON object per run; appended to")
    add("--list", type=Path, default=DEVELOPMENT, help="list of tasks (the development suite)")
    add("--tasks", nargs="+", default=[], help="names or patterns such as 'pacs-*'; default: all")
    add("--kinds", nargs="+", default=[], choices=KINDS, help="kinds of target; default: all")
    add("--seeds", type=int, default=1, help="runs of each task, seeds 0, 1, … (1)")
    add(
        "--method",
        nargs="+",
        default=[OWN],
        choices=[OWN, *METHODS],
        metavar="NAME",
        help=f"{OWN} (default) or other methods, {', '.join(METHODS)}",
    )
    add(
        "--thin",
        choices=THINNINGS,
        help="keep part of each target: with class sizes like 1/rank, or as many images evenly",
    )
    add("--preset", default="robust", help="robust (default), accurate or paper")
    add(
        "--set",
        nargs="+",
        action="extend",
        default=[],
        metavar="OPTION=VALUE",
        help="changes in the preset",
    )
    add(
        "--leave-one-family-out",
        nargs="*",
        default=None,
        choices=MEASURES,
        metavar="MEASURE",
        help="fit the constants of trust with each family left out, and print those of all; with "
        "measures other than those in use",
    )
    add("--cache", type=Path, default=user_cache() / "features", help="folder of cached features")
    add("--jobs", type=int, default=1, help="processes of one thread each (1)")
    return parser


if __name__ == "__main__":
    sys.exit(main())
