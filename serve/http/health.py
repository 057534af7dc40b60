"""The health routes: is the process alive, and should it get requests."""

from fastapi import FastAPI, Request, Response
from fastapi.responses import PlainTextResponse

from scda.serve.http.errors import RequestError
from scda.serve.http.requests.drain import Drain
from scda.serve.http.served.switch import ModelSwitch

_LIVE, _READY, _BOTH = HEALTH = ("/livez", "/readyz", "/healthz")


def serve_health(app: FastAPI) -> None:
    """Add the routes, which need no key.

    `/livez` answers as long as the event loop runs; `/readyz`, and `/healthz` for those who know
    one route alone, as `check_ready` says.
    """

    @app.get(_LIVE, include_in_schema=False)
    async def livez() -> Response:
        return PlainTextResponse("alive\n")

    @app.get(_READY, include_in_schema=False)
    @app.get(_BOTH, include_in_schema=False)
    async def readyz(request: Request) -> Response:
        check_ready(request.app)
        return PlainTextResponse("ready\n")


def check_ready(app: FastAPI) -> None:
    """Return if this process should get requests.

    Raises:
        RequestError: With code `unavailable`, if the server stops or has another model than the
            other workers.
    """
    drain: Drain = app.state.drain
    models: ModelSwitch = app.state.models
    if reason := "the server is stopping" if drain.begun else models.unready:
        raise RequestError("unavailable", reason)
