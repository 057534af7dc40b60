"""`scda-adapt review`: review the discovered classes on a local page."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from scda.adapt.cli.options import Bundle, Quiet, Target, Verbose
from scda.adapt.cli.output import print_report_hint
from scda.adapt.runtime.signals import Terminated
from scda.models.errors import GateError
from scda.models.extras import needs_extra


def review(
    bundle: Bundle,
    port: Annotated[int, typer.Option(min=0, help="Port of the page; 0 takes a free one.")] = 0,
    target: Target = None,
    pick: Annotated[
        int, typer.Option(min=1, help="Number of images that the filter of picked images shows.")
    ] = 20,
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
        serve_review(
            folder,
            port=port,
            target=target,
            picked=picker(folder, pick),
            browser=browser,
            on_address=announce,
        )
    if not quiet:
        _print_progress(folder)
    print_report_hint(folder)


def _print_progress(bundle: Path) -> None:
    from scda.models.bundle import read_manifest
    from scda.models.names import read_names
    from scda.serve.review.names_command import progress

    with suppress(GateError):  # the bundle was replaced or deleted under the page
        manifest = read_manifest(bundle, checked=False)
        for line in progress(manifest, read_names(bundle, manifest)).lines:
            typer.echo(line, err=True)


def picker(bundle: Path, count: int) -> Callable[[], Sequence[str]] | None:
    """Return what picks the images of the run around a bundle; None without a run."""
    from scda.models.files import real_path
    from scda.models.places import is_run

    run = real_path(bundle).parent
    if not is_run(run):
        return None

    def choose() -> Sequence[str]:
        with needs_extra("train"):
            from scda.adapt.picking.pick import pick

            return pick(run, count)

    return choose
