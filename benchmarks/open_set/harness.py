"""The command shared by the data sets: plan the runs, do the missing ones, print the tables."""

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.open_set import projection, results, stress, tables
from benchmarks.open_set.baselines import METHODS, measure_other
from benchmarks.open_set.estimators import k_runs, measure_k
from benchmarks.open_set.execute import features_of, records_of, say
from benchmarks.open_set.projection import measure_projection, projection_png
from benchmarks.open_set.protocols import DataSet
from benchmarks.open_set.ratio import ratio_png
from benchmarks.open_set.results import Record
from benchmarks.open_set.runs import Inputs, Run, measure
from benchmarks.open_set.stress import stress_runs
from benchmarks.open_set.studies import OWN, Request, ablation_runs, check, main_runs, ratio_runs
from scda.models.cache import user_cache
from scda.models.errors import ScdaError, UsageError
from scda.models.files import write_atomically

_METHODS = (*OWN, *METHODS)
_ALL = ("scda", *METHODS)


def measure_any(run: Run, inputs: Inputs) -> Record:
    """Return the record of a run of scda or of another method."""
    own = run.name["method"] in OWN
    return measure(run, inputs) if own else measure_other(run, inputs)


@dataclass(frozen=True)
class Study:
    """The runs of a study, the function that measures one run, and the table of the records."""

    plan: Callable[[Request], list[Run]]
    measure: Callable[[Run, Inputs], Record]
    table: Callable[[Sequence[Record]], str]
    tasks: tuple[str, ...] = ()  # the default of --tasks; empty takes all
    compares: bool = False  # accepts --method
    anywhere: bool = False  # runs on every data set; other studies change the classes of Office-31
    figure: Callable[[Sequence[Record]], bytes] | None = None  # draws a PNG


_STUDIES = {
    "main": Study(main_runs, measure_any, tables.main_tables, compares=True, anywhere=True),
    "ablation": Study(ablation_runs, measure, tables.ablation_table),
    "k": Study(k_runs, measure_k, tables.k_table),
    "stress": Study(stress_runs, measure, tables.stress_table, tasks=stress.TASKS),
    "ratio": Study(
        ratio_runs,
        measure_any,
        tables.ratio_table,
        tasks=("A-W", "A-D"),
        compares=True,
        figure=ratio_png,
    ),
    "tsne": Study(
        main_runs,
        measure_projection,
        projection.summary,
        tasks=("A-D",),
        figure=projection_png,
    ),
}


def main(data: DataSet, arguments: Sequence[str] | None = None) -> int:
    """Do the missing runs, print the tables, and return the exit code."""
    options = _parser(data).parse_args(arguments)
    try:
        _benchmark(data, options)
    except ScdaError as error:
        print(f"{data.name}: {error}", file=sys.stderr)
        return error.exit_code
    return 0


def _benchmark(data: DataSet, options: argparse.Namespace) -> None:
    request = _request(data, options)
    study = _STUDIES[request.study]
    runs = study.plan(request)
    there = {run.name["variant"] for run in runs}
    there |= {variant.split("/")[0] for variant in there}
    if strange := [row for row in request.rows if row not in there]:
        raise UsageError(f"study {request.study} has no row {' or '.join(strange)}")
    done = {results.key(record) for record in results.read(options.out)}
    missing = [run for run in runs if results.key(run.name) not in done]
    say(f"{len(runs)} runs, {len(runs) - len(missing)} already in {options.out}")
    started = time.monotonic()
    features = features_of(missing, request.cache)
    records = records_of(missing, features, study.measure, options.jobs)
    for number, record in enumerate(records, 1):
        results.append(options.out, record)
        say(f"{number} of {len(missing)}, {time.monotonic() - started:.0f} s: {_line(record)}")
    by_key = {results.key(record): record for record in results.read(options.out)}
    planned = [by_key[results.key(run.name)] for run in runs]
    print(study.table(planned))
    if study.figure and options.figure:
        write_atomically(options.figure, study.figure(planned))


def _request(data: DataSet, options: argparse.Namespace) -> Request:
    there = [name for name, study in _STUDIES.items() if study.anywhere or data.name == "office31"]
    if options.study not in there:
        raise UsageError(f"study is {options.study!r}, expected {' or '.join(there)}")
    study = _STUDIES[options.study]
    methods = _ALL if options.method == ["all"] else tuple(options.method or ["scda"])
    if strange := [name for name in methods if name not in _METHODS]:
        names = " or ".join((*_METHODS, "all"))
        raise UsageError(f"method is {strange[0]!r}; expected {names}")
    if methods != ("scda",) and not study.compares:
        raise UsageError(f"study {options.study} measures scda alone; leave out --method")
    if options.figure and not study.figure:
        raise UsageError(f"study {options.study} has no figure; leave out --figure")
    if min(options.seeds, options.jobs) < 1:
        raise UsageError(
            f"{options.seeds} seeds and {options.jobs} jobs; expected 1 or more of each"
        )
    request = Request(
        options.root,
        options.protocol,
        options.study,
        options.preset,
        tuple(options.tasks or study.tasks or data.tasks),
        options.seeds,
        options.cache,
        tuple(options.rows),
        methods,
        data,
        {"backbone": options.backbone, "weights": options.weights},
    )
    check(request)
    return request


def _line(record: Record) -> str:
    figures = {name: record[name] for name in ("os", "os_star", "hos", "k_star") if name in record}
    shown = ", ".join(f"{name} {value}" for name, value in figures.items())
    name = " ".join((record["method"], record["variant"]))
    return f"{name}, {record['task']}, seed {record['seed']}: {shown}"


def _parser(data: DataSet) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=f"{data.name}.py")
    add = parser.add_argument
    add("--root", type=Path, required=True, help=f"folder that holds {data.layout}")
    add("--out", type=Path, required=True, help="results, one JSON object per run; appended to")
    add("--protocol", default=data.protocols[0], help=f"{' or '.join(data.protocols)}")
    add("--study", default="main", help=f"main (default), or {', '.join(list(_STUDIES)[1:])}")
    add("--preset", default="robust", help="robust (default) or paper")
    add("--method", action="append", help=f"{', '.join(_METHODS)} or all; may be repeated")
    add("--backbone", help="as in `scda-adapt train`")
    add("--weights", help="file with the backbone's weights")
    add("--tasks", nargs="+", help=f"names such as {data.tasks[0]}; default: those of the study")
    add("--rows", nargs="+", default=[], help="variants, or stress cases; default: all")
    add("--seeds", type=int, default=3, help="runs of each task, seeds 0, 1, … (3)")
    add("--figure", type=Path, help="PNG file of the studies ratio and tsne")
    add("--cache", type=Path, default=user_cache() / "features", help="folder of cached features")
    add("--jobs", type=int, default=1, help="processes of one thread each (1)")
    return parser
