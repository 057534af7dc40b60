"""`scda-adapt doctor`: a check of the installation."""

from pathlib import Path
from typing import Annotated

import typer

from scda.adapt.cli.options import AsJson, Verbose
from scda.adapt.cli.output import print_json, print_table


def doctor(
    bundle: Annotated[
        Path | None, typer.Argument(help="Bundle or run to verify as well.", envvar="SCDA_BUNDLE")
    ] = None,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Check the installation: packages, devices, threads, image formats and a bundle."""
    from scda.adapt.runtime.doctor import examine

    examination = examine(bundle)
    if as_json:
        print_json(examination.to_json())
    else:
        print_table(examination.facts)
        for problem in examination.problems:
            typer.echo(f"problem: {problem.message}", err=True)
    if examination.problems:
        raise typer.Exit(examination.exit_code)
