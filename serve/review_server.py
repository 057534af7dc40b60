"""The review page as a program: an address with a token, at this machine alone, until Ctrl-C."""

import secrets
import socket
import threading
import webbrowser
from collections.abc import Callable
from pathlib import Path

import uvicorn

from scda.models.errors import UsageError
from scda.serve.review import create_review_app

HOST = "127.0.0.1"


def serve_review(
    bundle: Path,
    *,
    port: int = 0,
    target: Path | None = None,
    browser: bool = True,
    on_address: Callable[[str], None] = print,
) -> None:
    """Serve the review page of a bundle until SIGINT or SIGTERM.

    Args:
        bundle: The bundle's folder.
        port: 0 takes a free one.
        target: As in `create_review_app`.
        browser: Whether the user's browser is opened on the page.
        on_address: Called with the page's address once it can be opened.

    Raises:
        UsageError: If the port cannot be had.
        GateError: If the bundle is damaged.
    """
    token = secrets.token_urlsafe(24)
    app = create_review_app(bundle, token, target=target)
    with _listen(port) as listener:
        address = f"http://{HOST}:{listener.getsockname()[1]}/{token}/"
        config = uvicorn.Config(app, log_level="warning", access_log=False, lifespan="off")
        on_address(address)
        if browser:
            # Not before the server accepts: the listener holds the request until it does.
            threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()
        uvicorn.Server(config).run([listener])


def _listen(port: int) -> socket.socket:
    if not 0 <= port <= 65535:
        raise UsageError(f"port {port}: want 0 to 65535")
    try:
        return socket.create_server((HOST, port))
    except OSError as error:
        raise UsageError(f"{HOST}:{port}: cannot listen: {error}") from None
