"""`scda-adapt promote`: write reviewed target images as the source of the next training."""

from pathlib import Path
from typing import Annotated

import typer

from scda.adapt.cli.errors import ExitCode
from scda.adapt.cli.options import Bundle, Quiet, Target, Verbose


def promote(
    bundle: Bundle,
    out: Annotated[Path, typer.Option(help="New folder for the class folders.")],
    target: Target = None,
    source: Annotated[
        Path | None, typer.Option(help="Folder of the labelled training images, which are added.")
    ] = None,
    min_confidence: Annotated[
        float, typer.Option(min=0, max=1, help="Confidence below which an image is left out.")
    ] = 0.5,
    mode: Annotated[
        str,
        typer.Option(
            metavar="copy|hardlink|symlink", help="How files are placed into the class folders."
        ),
    ] = "copy",
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Write the reviewed, confident target images as the source of the next training."""
    from scda.adapt.runtime.progress import Reporter
    from scda.models.bundle import bundle_folder
    from scda.serve.review.promote import promote as promote_images

    with Reporter(quiet=quiet, verbose=verbose) as reporter:
        reporter.begin("promoting", 0)
        promotion = promote_images(
            bundle_folder(bundle),
            out,
            target=target,
            source=source,
            min_confidence=min_confidence,
            mode=mode,
            on_progress=reporter.done,
        )
        for line in promotion.lines():
            reporter.say(line)
    if promotion.missing or promotion.changed:
        raise typer.Exit(ExitCode.SOME_INPUTS_FAILED)
