"""Serve the review page on this machine alone, at an address with a secret token."""

import secrets
import socket
import tempfile
import threading
import webbrowser
from collections.abc import Callable, Iterator, Sequence
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
    picked: Callable[[], Sequence[str]] | None = None,
    browser: bool = True,
    on_address: Callable[[str], None] = print,
) -> None:
    """Serve the review page of a bundle until SIGINT or SIGTERM.

    Args:
        bundle: Folder of the bundle.
        port: Port to listen on; 0 chooses a free one.
        target: As in `create_review_app`.
        picked: As in `create_review_app`.
        browser: Whether to open the page in the user's browser.
        on_address: Called with the address of the page once it can be opened.

    Raises:
        UsageError: If the port is not available.
        GateError: If the bundle is damaged.
    """
    token = secrets.token_urlsafe(24)
    app = create_review_app(bundle, token, target=target, picked=picked)
    with _listen(port) as listener:
        address = f"http://{HOST}:{listener.getsockname()[1]}/{token}/"
        config = uvicorn.Config(  # h11 bounds the size of a request's headers
            app, http="h11", log_level="warning", access_log=False, lifespan="off"
        )
        on_address(address)
        with _redirect_file(address) as page:
            if browser:
                # The listener holds the browser's request until the server accepts.
                threading.Thread(target=webbrowser.open, args=(page,), daemon=True).start()
            uvicorn.Server(config).run([listener])


@contextmanager
def _redirect_file(address: str) -> Iterator[str]:
    """Yield the address of a temporary file that redirects to the page.

    Every user of this machine can see the arguments of a browser process, and the token in the
    address must stay secret; a temporary folder is open to its owner alone.
    """
    with tempfile.TemporaryDirectory(prefix="scda-review-") as folder:
        file = Path(folder) / "review.html"
        page = f'<!doctype html><meta http-equiv="refresh" content="0;url={address}">'
        file.write_text(page, "utf-8")
        yield file.as_uri()


def _listen(port: int) -> socket.socket:
    if not 0 <= port <= 65535:
        raise UsageError(f"port {port}: expected a number from 0 to 65535")
    try:
        return socket.create_server((HOST, port))
    except OSError as error:
        raise UsageError(
            f"cannot listen on {HOST}:{port}: {error}; choose another --port"
        ) from None
