"""`scda-adapt pick`: the target images whose label would help most."""

from pathlib import Path
from typing import Annotated

import typer

from scda.adapt.cli.errors import ExitCode
from scda.adapt.cli.options import Quiet, Target, Verbose
from scda.adapt.cli.predictor import load
from scda.models.errors import UsageError
from scda.models.extras import needs_extra


def pick(
    run: Annotated[Path, typer.Argument(help="Finished run.")],
    n: Annotated[int, typer.Option("--n", min=1, help="Number of images.")] = 20,
    out: Annotated[
        list[str] | None,
        typer.Option(
            help="Table of the images, in the formats of `label`; may be repeated; default: the "
            "paths on standard output."
        ),
    ] = None,
    sort_into: Annotated[
        Path | None,
        typer.Option(help="New folder to copy the images into, one folder per predicted class."),
    ] = None,
    image_root: Annotated[
        str | None, typer.Option(help="URL or path under which Label Studio finds the images.")
    ] = None,
    target: Target = None,
    seed: Annotated[int, typer.Option(min=0, max=2**31 - 1, help="Random seed.")] = 0,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Pick target images that a person should label: uncertain ones of different groups."""
    from scda.adapt.runs.folder import RunFolder, check_finished, read_config

    check_finished(run)
    folder = target or Path(read_config(RunFolder(run))["target"])
    if not folder.is_dir():
        raise UsageError(f"{folder}: the target folder does not exist; pass --target DIR")
    with needs_extra("train"):
        from scda.adapt.picking.pick import pick as choose
    from scda.adapt.runtime.progress import Reporter
    from scda.serve.labelling.label import check_places
    from scda.serve.labelling.label import label as label_images
    from scda.serve.labelling.outputs import DEFAULTS, Options
    from scda.serve.labelling.sources import ALL_FILES

    options = Options(sort_into=sort_into, image_root=image_root or DEFAULTS.image_root)
    if out or sort_into:  # before anything is loaded
        check_places([folder], out or [], options, ALL_FILES, None)
    paths = [folder / name for name in choose(run, n, seed=seed)]
    if not paths:
        typer.echo("every target image has a label: the source holds it, too", err=True)
        return
    if not (out or sort_into):
        for path in paths:
            typer.echo(str(path))
        return
    predictor = load(run, provider="auto")
    with Reporter(quiet=quiet, verbose=verbose) as reporter:
        reporter.begin("picking", 0)
        summary = label_images(
            predictor,
            paths,
            out or [],
            options=options,
            on_progress=lambda done, total, failed: reporter.done(done, total),
        )
        for line in summary.lines():
            reporter.say(line)
    if summary.num_failed:
        raise typer.Exit(ExitCode.SOME_INPUTS_FAILED)
