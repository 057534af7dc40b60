"""`scda-adapt review`: review the discovered classes on a local page."""

from contextlib import suppress
from typing import Annotated

import typer

from scda.adapt.cli.options import Bundle, Quiet, Target, Verbose
from scda.adapt.cli.output import print_report_hint
from scda.adapt.runtime.signals import Terminated


def review(
    bundle: Bundle,
    port: Annotated[int, typer.Option(min=0, help="Port of the page; 0 takes a free one.")] = 0,
    target: Target = None,
    browser: Annotated[bool, typer.Option(help="Open the page in the browser.")] = True,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Review the discovered classes on a local page: name, merge and drop them."""
    from scda.models.bundle import bundle_folder
    from scda.serve.review.server import serve_review

    def announce(address: str) -> None:
        typer.echo(address)
        if not quiet:
            note = "anyone with this address can change names; press Ctrl-C to stop"
            typer.echo(note, err=True)

    folder = bundle_folder(bundle)
    with suppress(KeyboardInterrupt, Terminated):  # the usual way to end it
        serve_review(folder, port=port, target=target, browser=browser, on_address=announce)
    print_report_hint(folder)
