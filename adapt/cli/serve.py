"""`scda-adapt serve`: serve a bundle over HTTP."""

import os
from typing import Annotated

import typer

from scda.adapt.cli.options import Bundle, Verbose
from scda.adapt.cli.predictor import load


def serve(
    bundle: Bundle,
    host: Annotated[str, typer.Option(help="IP address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on.")] = 3000,
    workers: Annotated[int, typer.Option(min=1, help="Number of server processes.")] = 1,
    verbose: Verbose = False,
) -> None:
    """Serve a bundle over HTTP."""
    from scda.models.bundle import bundle_folder
    from scda.serve.http.command import serve_command

    folder = bundle_folder(bundle)
    load(folder)  # reports a damaged bundle in one line, before workers would die of it
    argv, environment = serve_command(folder, host=host, port=port, workers=workers)
    os.execvpe(argv[0], argv, environment)  # this process becomes the server
