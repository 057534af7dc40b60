"""Let pages of other sites call the server, where its settings name them."""

from collections.abc import Sequence

from fastapi import FastAPI
from starlette.middleware.cors import CORSMiddleware

from scda.serve.http.v2.requests import HEADER_LENGTH

_SENT = ("Authorization", "Content-Type", HEADER_LENGTH)
_READ = ("ETag", "Retry-After", "X-Request-Id", HEADER_LENGTH)


def allow_origins(app: FastAPI, origins: Sequence[str]) -> None:
    """Answer browsers that ask for pages of these origins; without one, none may call.

    Browsers ask before they send a key, so this stands in front of the check of the key: add it
    last.
    """
    if origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=origins,
            allow_methods=("GET", "POST"),
            allow_headers=_SENT,
            expose_headers=_READ,
        )
