"""Draw where a suite went well and where it did not: one contact sheet per task.

    python -m benchmarks.pictures --data DIR --records FILE.jsonl --out DIR [--best N] [--worst N]
        [--tasks NAME …] [--seed N] [--preset NAME] [--set OPTION=VALUE …] [--list FILE]

Reads the records of `benchmarks.suite`, runs the best and the worst tasks again (or those named by
--tasks), writes TASK.jpg to --out with images of the source, and of the target what is right and
what is wrong, and prints the Markdown that shows the files.
"""

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks import suite
from benchmarks.open_set import results, runs
from benchmarks.open_set.execute import features_of, say
from benchmarks.open_set.protocols import Lists
from benchmarks.open_set.results import Record
from benchmarks.open_set.runs import Run
from benchmarks.suites.contact_sheet import Captioned, Row, contact_sheet
from benchmarks.suites.summary import figure, group_of
from benchmarks.suites.tasks import DEVELOPMENT, Task, read_tasks
from scda.adapt.evaluation.metrics import Labels
from scda.models.cache import user_cache
from scda.models.errors import ScdaError, UsageError
from scda.models.files import write_atomically

_MAX_BYTES = 100_000  # of one file


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the contact sheets, print the Markdown, and return the exit code."""
    options = _parser().parse_args(arguments)
    try:
        _draw(options)
    except ScdaError as error:
        print(f"pictures: {error}", file=sys.stderr)
        return error.exit_code
    return 0


def _draw(options: argparse.Namespace) -> None:
    tasks = {task.name: task for task in read_tasks(options.list)}
    planned = _planned(options, list(tasks.values()))
    by_key = {results.key(record): record for record in results.read(options.records)}
    keys = {name: results.key(run.name) for name, run in planned.items()}
    measured = {name: by_key[key] for name, key in keys.items() if key in by_key}
    names = options.tasks or ends(list(measured.values()), options.best, options.worst)
    if missing := [name for name in names or planned if name not in measured]:
        raise UsageError(
            f"{options.records}: found no run of {missing[0]} with seed {options.seed} and these "
            "options; expected results of benchmarks.suite"
        )
    features = features_of([planned[name] for name in names], options.cache)
    for name in names:
        say(f"running {name} again")
        inputs = features.inputs(planned[name])
        with threadpool_limits(1):
            predicted = runs.train(inputs, planned[name].config).rounds[-1]
        sheet = contact_sheet(rows_of(planned[name].lists, tasks[name], predicted), _MAX_BYTES)
        options.out.mkdir(parents=True, exist_ok=True)
        write_atomically(options.out / f"{name}.jpg", sheet)
        print(_markdown(measured[name], options.out / f"{name}.jpg"))


def _planned(options: argparse.Namespace, tasks: Sequence[Task]) -> dict[str, Run]:
    """Return the run of every task with the seed of the options."""
    changes = suite.changed(options.set)
    measured = suite.Suite(options.list.stem, options.preset, changes)
    planned = suite.plan(tasks, options.data, measured, options.seed + 1)
    return {run.name["task"]: run for run in planned if run.name["seed"] == options.seed}


def ends(records: Sequence[Record], best: int, worst: int) -> list[str]:
    """Return the names of the best and the worst tasks, each of another group."""
    ordered = sorted(records, key=figure)
    low = _of_other_groups(ordered, worst)
    return list(dict.fromkeys([*_of_other_groups(ordered[::-1], best), *low]))


def rows_of(lists: Lists, task: Task, predicted: Labels) -> list[Row]:
    """Return the rows of a task's sheet; images are drawn at random, one class after the other.

    Args:
        lists: Images of the task.
        task: The task, for the names of its classes.
        predicted: Predictions of the target, (N,); K and above are discovered classes.
    """
    names, num_known = [*sorted(task.known), *sorted(task.new)], lists.num_known
    truth, labels = np.array(lists.truth), np.array(lists.labels)
    known, right = truth < num_known, truth == predicted
    found = ~known & (predicted >= num_known)
    of_source = tuple(
        Captioned(lists.source[row], (names[labels[row]],))
        for row in drawn(np.arange(len(labels)), labels)
    )
    rows = [Row(f"Source: {num_known} known classes", of_source)]
    for title, chosen, every in (
        ("Known classes, right", known & right, known),
        ("Known classes, wrong", known & ~right, known),
        ("New classes, predicted as known", ~known & ~found, ~known),
        ("New classes, found", found, ~known),
    ):
        images = [
            Captioned(lists.target[row], _caption(truth[row], predicted[row], names, num_known))
            for row in drawn(np.flatnonzero(chosen), truth)
        ]
        if every.any():
            rows.append(Row(f"{title}: {chosen.sum()} of {every.sum()} images", tuple(images)))
    return rows


def drawn(rows: Labels, classes: Labels) -> Iterator[int]:
    """Yield the rows in random order, the first of every class before the second of any.

    Args:
        rows: Row numbers, (n,).
        classes: Classes of all images, (N,).
    """
    shuffled = np.random.default_rng(0).permutation(rows)
    seen: dict[int, int] = {}
    turns = []
    for row in shuffled.tolist():
        label = int(classes[row])
        seen[label] = seen.get(label, 0) + 1
        turns.append(seen[label])
    for position in np.argsort(turns, kind="stable"):
        yield int(shuffled[position])


def _caption(truth: int, predicted: int, names: Sequence[str], num_known: int) -> tuple[str, ...]:
    if predicted == truth:
        return (names[truth],)
    known = predicted < num_known
    return names[truth], f"as {names[predicted] if known else f'new {predicted - num_known}'}"


def _of_other_groups(ordered: Sequence[Record], count: int) -> list[str]:
    chosen: dict[str, str] = {}  # group → task
    for record in ordered:
        if len(chosen) < count:
            chosen.setdefault(group_of(record), record["task"])
    return list(chosen.values())


def _markdown(record: Record, file: Path) -> str:
    measure = "OS*" if record["kind"] == "none" else "HOS"
    heading = (
        f"{record['task']}: {measure} {figure(record):.1f}, "
        f"k* {record['k_star']} of {record['k_true']}"
    )
    return f"![{heading}]({file.as_posix()})\n\n{heading}\n"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    add = parser.add_argument
    add("--data", type=Path, required=True, help="folder that the list's folders are in")
    add("--records", type=Path, required=True, help="results that benchmarks.suite wrote")
    add("--out", type=Path, required=True, help="folder of the pictures")
    add("--best", type=int, default=2, help="number of tasks, each of another group (2)")
    add("--worst", type=int, default=3, help="number of tasks, each of another group (3)")
    add("--tasks", nargs="+", default=[], help="names of tasks in place of the best and worst")
    add("--list", type=Path, default=DEVELOPMENT, help="list of tasks (the development suite)")
    add("--seed", type=int, default=0, help="seed of the runs (0)")
    add("--preset", default="robust", help="robust (default), accurate or paper")
    add("--set", nargs="+", action="extend", default=[], metavar="OPTION=VALUE", help="as the runs")
    add("--cache", type=Path, default=user_cache() / "features", help="folder of cached features")
    return parser


if __name__ == "__main__":
    sys.exit(main())
