"""`scda-adapt serve`: serve a bundle over HTTP."""

from typing import Annotated

import typer

from scda.adapt.cli.options import Bundle, Verbose


def serve(
    bundle: Bundle,
    host: Annotated[str, typer.Option(help="IP address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on; 0 chooses a free one.")] = 3000,
    workers: Annotated[int, typer.Option(min=1, help="Number of server processes.")] = 1,
    verbose: Verbose = False,
) -> None:
    """Serve a bundle over HTTP."""
    from scda.serve.workers.command import serve as serve_bundle

    raise typer.Exit(serve_bundle(bundle, host=host, port=port, workers=workers))
