"""`scda-adapt serve`: a bundle behind an HTTP endpoint."""

import os
from typing import Annotated

import typer

from scda.adapt.cli.options import Bundle, Verbose
from scda.adapt.cli.predictor import load


def serve(
    bundle: Bundle,
    host: Annotated[str, typer.Option(help="IP address to listen at.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen at.")] = 3000,
    workers: Annotated[int, typer.Option(min=1, help="Number of server processes.")] = 1,
    verbose: Verbose = False,
) -> None:
    """Serve a bundle over HTTP."""
    from scda.models.bundle import bundle_folder
    from scda.serve.http.command import serve_command

    folder = bundle_folder(bundle)
    load(folder)  # a damaged bundle is one line here, not a worker that dies
    argv, environment = serve_command(folder, host=host, port=port, workers=workers)
    os.execvpe(argv[0], argv, environment)  # this process becomes the server
