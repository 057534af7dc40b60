"""`scda-adapt evaluate`: the metrics of a bundle on labelled images."""

from pathlib import Path
from typing import Annotated, Any

import typer

from scda.adapt.cli.errors import ExitCode
from scda.adapt.cli.options import AsJson, Bundle, Provider, Quiet, Threads, Verbose
from scda.adapt.cli.output import print_json, print_table
from scda.adapt.cli.predictor import load
from scda.models.extras import needs_extra


def evaluate(
    bundle: Bundle,
    labelled: Annotated[Path, typer.Argument(help="Target images in class folders.")],
    as_json: AsJson = False,
    provider: Provider = "auto",
    threads: Threads = 0,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Measure a bundle on labelled target images; shares are in percent."""
    from scda.adapt.data.scan import require_folder
    from scda.models.bundle import bundle_folder

    # Before the imports below, which take seconds.
    folder = bundle_folder(bundle)
    require_folder(labelled, "labelled")
    with needs_extra("train"):
        from scda.adapt.evaluation.evaluate import evaluate as measure
        from scda.adapt.evaluation.evaluate import score
    from scda.adapt.runtime.progress import Reporter

    predictor = load(folder, provider=provider, threads=threads)
    with Reporter(quiet=quiet, verbose=verbose) as reporter:
        reporter.begin("evaluating", 0)
        scored = score(predictor, labelled, on_progress=reporter.done)
        fields = measure(scored, predictor)
    if as_json:
        print_json(fields)
    else:
        bins = fields.pop("reliability")
        print_table(fields)
        _print_reliability(bins)
    if scored.rejected:
        raise typer.Exit(ExitCode.SOME_INPUTS_FAILED)


def _print_reliability(bins: list[dict[str, Any]]) -> None:
    """Print how many of the images with a confidence are right."""
    typer.echo("kind        confidence  mean  right  images")
    for one in bins:
        bounds = f"{one['low']:.2f}-{one['high']:.2f}"
        shares = f"{one['confidence']:.2f}  {one['accuracy']:5.2f}"
        typer.echo(f"{one['kind']:10}  {bounds:10}  {shares}  {one['images']:6}")
