"""The review page as a program: an address with a token, at this machine alone, until Ctrl-C."""

import secrets
import socket
import tempfile
import threading
import webbrowser
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import uvicorn

from scda.models.errors import UsageError
from scda.serve.review.application import create_review_app

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
        with _door(address) as page:
            if browser:
                # The listener holds the browser's request until the server accepts.
                threading.Thread(target=webbrowser.open, args=(page,), daemon=True).start()
            uvicorn.Server(config).run([listener])


@contextmanager
def _door(address: str) -> Iterator[str]:
    """Give the address of a file that leads to the page.

    A browser's arguments can be seen by everybody on this machine, and the token is all that
    keeps them out; a temporary file is for its owner alone.
    """
    with tempfile.NamedTemporaryFile("w", prefix="scda-review-", suffix=".html") as file:
        file.write(f'<!doctype html><meta http-equiv="refresh" content="0;url={address}">')
        file.flush()
        yield Path(file.name).as_uri()


def _listen(port: int) -> socket.socket:
    if not 0 <= port <= 65535:
        raise UsageError(f"port {port}: want 0 to 65535")
    try:
        return socket.create_server((HOST, port))
    except OSError as error:
        raise UsageError(f"{HOST}:{port}: cannot listen: {error}") from None
