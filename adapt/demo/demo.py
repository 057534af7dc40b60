"""The demo: a whole run on images of digits that are installed with other packages."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scda.adapt.config import OPTIONS, TrainConfig
from scda.adapt.data.job import Job
from scda.adapt.demo.backbone import train_backbone
from scda.adapt.demo.data import (
    draw_printed_letters,
    write_handwritten_digits,
    write_printed_digits,
)
from scda.adapt.demo.room import make_room
from scda.adapt.evaluation.confusions import make_truth
from scda.adapt.evaluation.evaluate import evaluate, score
from scda.adapt.pipeline.run import train
from scda.adapt.report.report import write_report
from scda.adapt.runtime.progress import Reporter
from scda.models.predictor import load_predictor

PER_CLASS = 300  # number of printed images of each digit
PER_LETTER = 120  # and of each letter


@dataclass(frozen=True)
class Demo:
    """The results of a demo."""

    bundle: Path
    report: Path
    target: Path
    metrics: dict[str, Any]  # measured with labels that training never saw


def run_demo(out: Path, *, seed: int, overwrite: bool, reporter: Reporter) -> Demo:
    """Draw printed digits 0-5, train a small backbone on them, adapt to handwritten 0-9.

    Args:
        out: Folder for everything the demo makes.
        seed: Random seed.
        overwrite: Whether to replace an earlier demo in `out`.
        reporter: Reporter of the progress.

    Raises:
        UsageError: If `out` holds anything but a demo, a demo and `overwrite` is False, or one that
            another process is making, or the seed is out of range.
    """
    OPTIONS["seed"].check(seed)
    with make_room(out, overwrite=overwrite):
        return _make_demo(out, seed, reporter)


def _make_demo(out: Path, seed: int, reporter: Reporter) -> Demo:
    source, target, labelled = out / "source", out / "target", out / "labelled"
    weights = out / "backbone.safetensors"
    reporter.say("drawing printed digits 0-5, unpacking handwritten digits 0-9")
    write_printed_digits(source, per_class=PER_CLASS, seed=seed)
    write_handwritten_digits(target, labelled, seed=seed)
    letters = draw_printed_letters(per_class=PER_LETTER, seed=seed)
    reporter.begin("training a small backbone on the printed digits, and on letters", 0)
    train_backbone(source, weights, letters=letters, seed=seed, on_step=reporter.done)
    job = Job(
        source=source,
        target=target,
        out=out / "run",
        cache=out / "features",
        config=TrainConfig(backbone="conv4", weights=str(weights), seed=seed),
    )
    train(job, reporter)
    predictor = load_predictor(job.out / "bundle")
    reporter.begin("evaluating", 0)
    scored = score(predictor, labelled, on_progress=reporter.done)
    fields = evaluate(scored, predictor)
    report = write_report(job.out, reporter, truth=make_truth(scored, fields, predictor))
    return Demo(job.out / "bundle", report, target, fields)
