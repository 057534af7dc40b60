"""Open-set adaptation with class discovery on the six tasks of Office-31.

    python benchmarks/office31.py --root DIR --out FILE.jsonl [--study main|ablation|k|stress]

Appends one JSON object per run, leaves out what the file holds already, and prints tables.
"""

import argparse
import multiprocessing
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import results
import stress
import tables
from estimators import k_runs, measure_k
from protocols import TASKS
from results import Record
from runs import Inputs, Run, inputs_of, measure, one_thread
from scda.adapt.cli import user_cache
from scda.adapt.data import job_backbone
from scda.adapt.features import extract
from scda.models.errors import DataError, ScdaError, UsageError
from stress import stress_runs
from studies import Request, ablation_runs, check, main_runs

_METHODS = ("scda",)


@dataclass(frozen=True)
class Study:
    """What is run, what one run measures, and how the records are shown."""

    plan: Callable[[Request], list[Run]]
    measure: Callable[[Run, Inputs], Record]
    table: Callable[[Sequence[Record]], str]
    tasks: tuple[str, ...] = TASKS  # without --tasks


_STUDIES = {
    "main": Study(main_runs, measure, tables.main_tables),
    "ablation": Study(ablation_runs, measure, tables.ablation_table),
    "k": Study(k_runs, measure_k, tables.k_table),
    "stress": Study(stress_runs, measure, tables.stress_table, tasks=stress.TASKS),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what is missing, print the tables, and return the exit code."""
    options = _parser().parse_args(arguments)
    try:
        _benchmark(options)
    except ScdaError as error:
        print(f"office31: {error}", file=sys.stderr)
        return error.exit_code
    return 0


def _benchmark(options: argparse.Namespace) -> None:
    request = _request(options)
    study = _STUDIES[request.study]
    runs = study.plan(request)
    there = {run.name["variant"] for run in runs}
    there |= {variant.split("/")[0] for variant in there}
    if strange := [row for row in request.rows if row not in there]:
        raise UsageError(f"study {request.study} has no row {' or '.join(strange)}")
    done = {results.key(record) for record in results.read(options.out)}
    missing = [run for run in runs if results.key(run.name) not in done]
    _say(f"{len(runs)} runs, {len(runs) - len(missing)} of them in {options.out} already")
    started = time.monotonic()
    features = _features(missing, request.cache)
    records = _records(missing, features, study.measure, options.jobs)
    for number, record in enumerate(records, 1):
        results.append(options.out, record)
        _say(f"{number} of {len(missing)}, {time.monotonic() - started:.0f} s: {_line(record)}")
    by_key = {results.key(record): record for record in results.read(options.out)}
    print(study.table([by_key[results.key(run.name)] for run in runs]))


def _request(options: argparse.Namespace) -> Request:
    if options.study not in _STUDIES:
        raise UsageError(f"study is {options.study!r}, want {' or '.join(_STUDIES)}")
    if options.method not in _METHODS:
        raise UsageError(f"method is {options.method!r}, want {' or '.join(_METHODS)}")
    if min(options.seeds, options.jobs) < 1:
        raise UsageError(f"{options.seeds} seeds and {options.jobs} jobs; want 1 or more of each")
    tasks = options.tasks or _STUDIES[options.study].tasks
    request = Request(
        options.root,
        options.protocol,
        options.study,
        options.preset,
        tuple(tasks),
        options.seeds,
        options.cache,
        tuple(options.rows),
    )
    check(request)
    return request


def _features(runs: Sequence[Run], cache: Path) -> dict[Path, NDArray[np.float32]]:
    """Return the backbone's features of every image that a run needs."""
    if not runs:
        return {}
    paths = sorted({path for run in runs for path in run.lists.source + run.lists.target})
    _say(f"features of {len(paths)} images")
    extracted = extract(paths, job_backbone(runs[0].config), cache_folder=cache)
    if extracted.rejected:
        raise DataError(f"{extracted.rejected[0].path}: {extracted.rejected[0].message}")
    return dict(zip(extracted.paths, extracted.features, strict=True))


def _records(
    runs: Sequence[Run],
    features: dict[Path, NDArray[np.float32]],
    measure: Callable[[Run, Inputs], Record],
    jobs: int,
) -> Iterator[Record]:
    """Yield the record of every run as it ends, from `jobs` processes of one thread each."""
    work = ((run, inputs_of(run.lists, features)) for run in runs)
    if jobs == 1:
        one_thread()
        for run, inputs in work:
            yield measure(run, inputs)
        return
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, mp_context=context, initializer=one_thread) as pool:
        pending: set[Future[Record]] = set()
        for run, inputs in work:
            pending.add(pool.submit(measure, run, inputs))
            if len(pending) > jobs:  # no more ahead: each holds megabytes of features
                done, pending = wait(pending, return_when=FIRST_COMPLETED)
                yield from (future.result() for future in done)
        yield from (future.result() for future in pending)


def _line(record: Record) -> str:
    figures = {name: record[name] for name in ("os", "os_star", "hos", "k_star") if name in record}
    told = ", ".join(f"{name} {value}" for name, value in figures.items())
    return f"{record['variant']}, {record['task']}, seed {record['seed']}: {told}"


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--root", type=Path, required=True, help="folder of amazon, dslr and webcam")
    add("--out", type=Path, required=True, help="results, one JSON object per run; added to")
    add("--protocol", default="P1", help="P1 (default) or P2")
    add("--study", default="main", help="main (default), ablation, k or stress")
    add("--preset", default="robust", help="robust (default) or paper")
    add("--method", default="scda", help="scda, the only one so far")
    add("--tasks", nargs="+", help="such as A-W; without it all six, and four for stress")
    add("--rows", nargs="+", default=[], help="variants, or stress cases; without it all")
    add("--seeds", type=int, default=3, help="runs of each task, seeds 0, 1, … (3)")
    add("--cache", type=Path, default=user_cache() / "features", help="folder of features")
    add("--jobs", type=int, default=1, help="processes of one thread each (1)")
    return parser


if __name__ == "__main__":
    sys.exit(main())
