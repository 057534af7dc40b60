"""`scda-adapt report`: rewrite the report of a run with the current names."""

from pathlib import Path
from typing import Annotated

import typer

from scda.adapt.cli.errors import ExitCode
from scda.adapt.cli.options import Quiet, Verbose
from scda.adapt.cli.predictor import load
from scda.models.extras import needs_extra


def report(
    run: Annotated[Path, typer.Argument(help="Finished run.")],
    labelled: Annotated[
        Path | None,
        typer.Option(help="Target images in class folders; adds metrics and a confusion matrix."),
    ] = None,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Rewrite the report of a run with the current names."""
    from scda.adapt.data.scan import require_folder
    from scda.adapt.runs.folder import check_finished, only_run_writer

    # Before the imports below, which take seconds.
    check_finished(run)
    if labelled:
        require_folder(labelled, "labelled")
    with needs_extra("train"):
        from scda.adapt.evaluation.confusions import make_truth
        from scda.adapt.evaluation.evaluate import evaluate as measure
        from scda.adapt.evaluation.evaluate import score
        from scda.adapt.report.report import write_report
    from scda.adapt.runtime.progress import Reporter

    truth, rejected = None, 0
    with only_run_writer(run), Reporter(quiet=quiet, verbose=verbose) as reporter:
        if labelled:
            predictor = load(run)
            reporter.begin("evaluating", 0)
            scored = score(predictor, labelled, on_progress=reporter.done)
            truth = make_truth(scored, measure(scored, predictor), predictor)
            rejected = scored.rejected
        written = write_report(run, reporter, truth=truth)
    typer.echo(str(written))
    if rejected:
        raise typer.Exit(ExitCode.SOME_INPUTS_FAILED)
