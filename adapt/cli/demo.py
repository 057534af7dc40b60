"""`scda-adapt demo`: a whole run on images that are installed with the package."""

from pathlib import Path
from typing import Annotated

import typer

from scda.adapt.cli.options import Quiet, Verbose
from scda.adapt.cli.output import print_table
from scda.adapt.cli.predictor import load
from scda.adapt.config import OPTIONS
from scda.models.extras import needs_extra


def demo(
    out: Annotated[
        Path, typer.Option(help="Folder for the images, the run and the labels.")
    ] = Path("demo"),
    seed: Annotated[int, typer.Option(help="Random seed.")] = 0,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace an earlier demo.")
    ] = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Train on printed digits 0-5, adapt to handwritten 0-9 and find the four new digits."""
    from scda.adapt.demo.room import check_room

    OPTIONS["seed"].check(seed)
    check_room(out, overwrite=overwrite)  # before the imports below, which take seconds
    with needs_extra("train"):
        from scda.adapt.demo.demo import run_demo
    from scda.adapt.runtime.progress import Reporter
    from scda.serve.labelling.label import label as label_images

    labels = out / "labels.csv"
    with Reporter(quiet=quiet, verbose=verbose) as reporter:
        result = run_demo(out, seed=seed, overwrite=overwrite, reporter=reporter)
        reporter.begin("labelling", 0)
        label_images(
            load(result.bundle, threads=1),
            [result.target],
            [str(labels)],
            on_progress=lambda done, total, failed: reporter.done(done, total),
        )
    print_table({name: value for name, value in result.metrics.items() if name != "reliability"})
    typer.echo("measured with the digits' true labels, which training does not see")
    typer.echo(f"report: {result.report}\nlabels: {labels}\nbundle: {result.bundle}")
