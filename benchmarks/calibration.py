"""Measure what a confidence means before and after calibration, on the development suite.

    python -m benchmarks.calibration --data DIR --out DIR [--tasks PATTERN …] [--seed N]
        [--figure FILE.svg] [--cache DIR]

Trains every task twice: on the whole source, and without a fifth of each class, which gives the
held-out images that other ways of calibration need. Keeps logits and truth in a file per task, and
skips those that exist. Then compares ways to calibrate by their ECE in 15 bins: constants that were
fitted on the suite are judged on the family that was left out. Prints the line that the product
uses, fitted on all families.
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from pathlib import Path

import numpy as np
import torch
from threadpoolctl import threadpool_limits

from benchmarks.open_set.aggregate import markdown
from benchmarks.open_set.execute import features_of, say
from benchmarks.open_set.runs import Inputs, Run, one_thread
from benchmarks.suite import chosen
from benchmarks.suites.calibrated import (
    Measured,
    Method,
    Temperatures,
    expected_accuracy,
    fit_doubt,
    fit_line,
    held_out_source,
    left_out,
    mean_of,
    neighbours,
    of_classes,
    of_kind,
    other_run,
    over_groups,
    probabilities,
    uncalibrated,
)
from benchmarks.suites.summary import MISSING
from benchmarks.suites.tasks import DEVELOPMENT, Task, read_tasks
from scda.adapt.config import TrainConfig
from scda.adapt.config_file import resolve
from scda.adapt.data.dataset import Labelled
from scda.adapt.evaluation.reliability import reliability
from scda.adapt.report.figures import reliability_svg
from scda.adapt.training.algorithm import Adapted, adapt
from scda.adapt.training.domains import Domains
from scda.adapt.training.networks import infer
from scda.models.cache import user_cache
from scda.models.errors import ScdaError
from scda.models.index import Features

_HELD_OUT = 5  # one of so many source images of each class
_LENGTH = 15.0  # of F's inputs, as in training


def main(arguments: Sequence[str] | None = None) -> int:
    """Do the missing runs, print the tables, and return the exit code."""
    options = _parser().parse_args(arguments)
    try:
        tasks = chosen(read_tasks(DEVELOPMENT), options.tasks, [])
        _measure(tasks, options)
    except ScdaError as error:
        print(f"calibration: {error}", file=sys.stderr)
        return error.exit_code
    paths = [options.out / f"{task.name}.{options.seed}.npz" for task in tasks]
    runs = [read(path) for path in paths if path.exists()]
    print(tables([run for run in runs if not run.group.endswith(MISSING)], options.figure))
    return 0


def _measure(tasks: Sequence[Task], options: argparse.Namespace) -> None:
    options.out.mkdir(parents=True, exist_ok=True)
    config = resolve({"preset": "robust", "seed": options.seed})
    missing = {
        path: Run({"group": f"{task.family}, {task.kind}"}, task.lists(options.data), config)
        for task in tasks
        if not (path := options.out / f"{task.name}.{options.seed}.npz").exists()
    }
    computed = features_of(list(missing.values()), options.cache)
    one_thread()
    for path, run in missing.items():
        with threadpool_limits(1):
            found = measured(path.name.split(".")[0], run, computed.inputs(run))
        np.savez(path, **{field.name: getattr(found, field.name) for field in fields(found)})
        say(path.name)


def measured(task: str, run: Run, inputs: Inputs) -> Measured:
    """Return what both runs of a task give; the truth is read after training has ended."""
    labels = inputs.source.labels.numpy()
    held = held_out(labels, run.config.seed)
    adapted = adapt(inputs.source, inputs.target, run.config, classifier=inputs.classifier)
    kept = Labelled(inputs.source.features[~held], inputs.source.labels[~held])
    other = adapt(kept, inputs.target, run.config, classifier=inputs.classifier)
    group = str(run.name["group"])
    return Measured(
        task=task,
        family=group.partition(",")[0],
        group=group,
        num_known=run.lists.num_known,
        truth=np.array(run.lists.truth),
        logits=infer(adapted.networks, adapted.target)[0].numpy(),
        near=adapted.outcome.near,
        expected=adapted.trust.expected_accuracy,
        separation=adapted.trust.measures["separation"],
        held_logits=of_source(other, kept, inputs, run.config, held),
        held_labels=labels[held],
        other_logits=infer(other.networks, other.target)[0].numpy(),
    )


def held_out(labels: np.ndarray, seed: int) -> np.ndarray:
    """Return whether each source image is held out: a fifth of each class, (N,)."""
    rng, held = np.random.default_rng(seed), np.zeros(len(labels), bool)
    for label in np.unique(labels):
        rows = rng.permutation(np.flatnonzero(labels == label))
        held[rows[: max(1, len(rows) // _HELD_OUT)]] = True
    return held


def of_source(
    adapted: Adapted, kept: Labelled, inputs: Inputs, config: TrainConfig, held: np.ndarray
) -> Features:
    """Return the logits of held-out source images, whitened as the source of a run is."""
    whitening = Domains(kept, inputs.target, config).whitening
    points = _LENGTH * whitening.source(inputs.source.features[held].numpy())
    head = torch.nn.Sequential(*list(adapted.networks.head.children())[1:]).eval()
    with torch.inference_mode():
        return np.asarray(adapted.networks.classifier(head(torch.from_numpy(points))).numpy())


def read(path: Path) -> Measured:
    """Return a run from its file."""
    with np.load(path, allow_pickle=False) as stored:
        found = {field.name: stored[field.name] for field in fields(Measured)}
    plain = {name: value.item() if value.ndim == 0 else value for name, value in found.items()}
    return Measured(**plain)


def tables(runs: Sequence[Measured], figure: Path | None = None) -> str:
    """Return the comparison of methods, the groups before and after, and the line of all runs."""
    lines, doubts = left_out(runs, fit_line), left_out(runs, fit_doubt)

    def in_use(run: Measured) -> Temperatures:
        return of_classes(run, lines[run.family], doubts[run.family])

    def without_doubt(run: Measured) -> Temperatures:
        return of_classes(run, lines[run.family], 0.0)

    def pooled(run: Measured) -> Temperatures:
        return of_kind(run, lines[run.family])

    methods: dict[str, Method] = {
        "none": uncalibrated,
        "one temperature, held-out source": held_out_source,
        "one temperature, expected accuracy": expected_accuracy,
        "two temperatures, agreement with another run": other_run,
        "two temperatures, agreement with neighbours": neighbours,
        "one temperature for all discovered classes": pooled,
        "a temperature per discovered class": without_doubt,
        "the same, and one for known classes (in use)": in_use,
    }
    compared = {name: over_groups(runs, method) for name, method in methods.items()}
    rows = [
        [name, *(f"{error:.1f}" for error in mean_of(found)), f"{worst(found):.1f}"]
        for name, found in compared.items()
    ]
    header = ["ECE, mean over groups", "all images", "known", "discovered", "Brier", "worst group"]
    if figure:
        figure.write_text(drawn(runs, in_use))
    before, after = compared["none"], over_groups(runs, in_use)
    return (
        f"{len(runs)} runs\n\n{markdown(header, rows)}\n\n{by_group(before, after)}\n\n"
        f"RIGHT = {fit_line(runs)}\nDOUBT = {fit_doubt(runs)} (left out: {doubts})"
    )


def worst(found: Mapping[str, Sequence[float]]) -> float:
    """Return the largest ECE of all images of a group."""
    return max(errors[0] for errors in found.values())


def by_group(before: Mapping[str, Sequence[float]], after: Mapping[str, Sequence[float]]) -> str:
    """Return a row per group: the ECE before and after of all images, known and discovered."""
    rows = [
        [group, *(_arrow(*pair) for pair in zip(before[group][:3], after[group], strict=False))]
        for group in before
    ]
    return markdown(["group", "all images", "known", "discovered"], rows)


def drawn(runs: Sequence[Measured], in_use: Method) -> str:
    """Return the reliability of all images of all runs after calibration, as an SVG file."""
    confidence = [probabilities(run, in_use(run)).max(axis=1) for run in runs]
    bins = []
    for kind in ("known", "discovered"):
        of_kind = [run.new == (kind == "discovered") for run in runs]
        found = reliability(
            np.concatenate([c[of] for c, of in zip(confidence, of_kind, strict=True)]),
            np.concatenate([run.correct[of] for run, of in zip(runs, of_kind, strict=True)]),
        )
        bins += [{"kind": kind, **asdict(one)} for one in found]
    return reliability_svg(bins, alone=True)


def _arrow(before: float, after: float) -> str:
    return "" if np.isnan(before) else f"{before:.1f} → {after:.1f}"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    add = parser.add_argument
    add("--data", type=Path, required=True, help="folder that the suite's folders are in")
    add("--out", type=Path, required=True, help="folder of results, one file per task and seed")
    add("--tasks", nargs="+", default=[], help="names or patterns such as 'pacs-*'; default: all")
    add("--seed", type=int, default=0, help="seed of the runs (0)")
    add("--figure", type=Path, help="SVG file for the reliability plot after calibration")
    add("--cache", type=Path, default=user_cache() / "features", help="folder of cached features")
    return parser


if __name__ == "__main__":
    sys.exit(main())
