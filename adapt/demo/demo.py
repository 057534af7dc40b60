"""The demo: a whole run on images of digits that are installed with other packages."""

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scda.adapt.config import OPTIONS, TrainConfig
from scda.adapt.data.dataset import Job
from scda.adapt.demo.backbone import train_backbone
from scda.adapt.demo.data import write_handwritten_digits, write_printed_digits
from scda.adapt.evaluation.confusions import make_truth
from scda.adapt.evaluation.evaluate import evaluate, score
from scda.adapt.pipeline.run import train
from scda.adapt.report.report import write_report
from scda.adapt.runtime.progress import Reporter
from scda.models.errors import UsageError
from scda.models.predictor import load_predictor

PER_CLASS = 300  # number of printed images of each digit
_MARK = ".scda-demo"  # marks a folder of the demo; only such a folder is ever replaced


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
        UsageError: If `out` holds anything but a demo, or a demo and `overwrite` is False, or
            the seed is out of range.
    """
    OPTIONS["seed"].check(seed)
    _make_room(out, overwrite=overwrite)
    source, target, labelled = out / "source", out / "target", out / "labelled"
    weights = out / "backbone.safetensors"
    reporter.say("drawing printed digits 0-5, unpacking handwritten digits 0-9")
    write_printed_digits(source, per_class=PER_CLASS, seed=seed)
    write_handwritten_digits(target, labelled, seed=seed)
    reporter.begin("training a small backbone on the printed digits", 0)
    train_backbone(source, weights, seed=seed, on_step=reporter.done)
    job = Job(
        source=source,
        target=target,
        out=out / "run",
        cache=out / "features",
        # The target is known to hold new digits, 6-9; docs/method.md explains `yes`.
        config=TrainConfig(backbone="conv4", weights=str(weights), seed=seed, novel="yes"),
    )
    train(job, reporter)
    predictor = load_predictor(job.out / "bundle")
    reporter.begin("evaluating", 0)
    scored = score(predictor, labelled, on_progress=reporter.done)
    fields = evaluate(scored, predictor)
    report = write_report(job.out, reporter, truth=make_truth(scored, fields, predictor))
    return Demo(job.out / "bundle", report, target, fields)


def _make_room(out: Path, *, overwrite: bool) -> None:
    try:
        out.mkdir(parents=True, exist_ok=True)
        there = list(out.iterdir())
    except OSError as error:
        raise UsageError(f"{out}: cannot use this folder: {error.strerror}") from None
    if there and not (out / _MARK).is_file():
        raise UsageError(f"{out}: is not a demo; expected a new folder, or one of an earlier demo")
    if there and not overwrite:
        raise UsageError(f"{out}: holds an earlier demo; pass --overwrite to replace it")
    for path in there:
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    (out / _MARK).touch()
