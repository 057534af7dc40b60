"""`scda-adapt inspect`: show the contents of a bundle."""

from typing import TYPE_CHECKING, Annotated

import typer

from scda.adapt.cli.options import AsJson, Bundle, Verbose
from scda.adapt.cli.output import print_json
from scda.adapt.cli.predictor import load

if TYPE_CHECKING:
    from scda.models.trust import ClassTrust


def inspect(
    bundle: Bundle,
    verify: Annotated[
        bool,
        typer.Option("--verify", help="Check every checksum and compare the parity images."),
    ] = False,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Show the contents of a bundle."""
    from scda.models.bundle import bundle_folder, read_manifest

    folder = bundle_folder(bundle)
    manifest = read_manifest(folder, checked=verify)
    if as_json:
        print_json(manifest.to_json())
    else:
        typer.echo(f"bundle {manifest.id}, status: {', '.join(manifest.status)}")
        if manifest.trust:
            typer.echo(manifest.trust.sentence)
        if manifest.on_target:
            typer.echo(manifest.on_target.sentence)
        for line in manifest.previous.lines if manifest.previous else ():
            typer.echo(line)
        for info in manifest.classes:
            nearest = f"  near {info.nearest_known}" if info.nearest_known else ""
            nearest += f" ({info.trust.similarity:.2f})" if info.trust else ""
            typer.echo(f"{info.class_id}  {info.size:6} images  {info.label}{nearest}")
            if info.trust:
                typer.echo(f"    {_measured(info.trust)}")
    if verify:
        load(folder)
        typer.echo("verified: checksums, model, index, parity images", err=True)


def _measured(trust: "ClassTrust") -> str:
    return f"doubtful: {trust.reason}" if trust.doubts else trust.measures
