"""`scda-adapt export`: write a run's model in int8 as a bundle of its own."""

from pathlib import Path
from typing import Annotated

import typer

from scda.adapt.cli.options import AsJson, Bundle, Quiet, Target, Verbose
from scda.adapt.cli.output import print_json
from scda.models.errors import UsageError
from scda.models.extras import needs_extra


def export(
    bundle: Bundle,
    out: Annotated[Path, typer.Option(help="New folder for the bundle.")],
    precision: Annotated[
        str, typer.Option(metavar="int8", help="Precision of the new model's convolutions.")
    ] = "int8",
    target: Target = None,
    min_agreement: Annotated[
        float,
        typer.Option(min=0, max=1, help="Least share of target images that keep their class."),
    ] = 0.99,
    calibration_images: Annotated[
        int,
        typer.Option(min=1, max=10_000, help="Target images on which activations are measured."),
    ] = 160,
    as_json: AsJson = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Write a model in int8, which is faster on a CPU, if it answers as the float32 one does."""
    from scda.models.bundle import bundle_folder

    if precision != "int8":
        raise UsageError(f"precision is {precision!r}; expected int8")
    bundle_folder(bundle)  # before the imports below, which take seconds
    with needs_extra("train"):
        from scda.adapt.pipeline.export import Export
        from scda.adapt.pipeline.export import export as export_job
    from scda.adapt.runtime.progress import Reporter

    job = Export(
        run=bundle,
        out=out,
        target=target,
        min_agreement=min_agreement,
        calibration_images=calibration_images,
    )
    with Reporter(quiet=quiet, verbose=verbose) as reporter:
        manifest = export_job(job, reporter)
    found = manifest.quantisation
    assert found is not None
    if as_json:
        fields = manifest.to_json()["quantisation"]
        print_json({"bundle": str(out), "id": manifest.id, **fields})
        return
    typer.echo(f"{found.sentence}\nbundle: {out}")
