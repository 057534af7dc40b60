"""The route `POST /v1/admin/reload`: serve what the bundle's path holds now."""

import dataclasses
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeAlias

from fastapi import FastAPI
from fastapi.responses import JSONResponse

from scda.models.errors import ScdaError
from scda.serve.http.errors import RequestError
from scda.serve.http.openapi import errors
from scda.serve.http.served.switch import ModelSwitch

# Switches all workers to the bundle at the path that the server was started with, and returns the
# id of its model, or raises a ScdaError and leaves all as they were.
Reload: TypeAlias = Callable[[], Awaitable[str]]


@dataclass(frozen=True)
class Reloaded:
    """The model that is served from now on, and the one before."""

    model_id: str
    previous_model_id: str


def serve_reload(app: FastAPI, models: ModelSwitch, reload: Reload) -> None:
    """Add `POST /v1/admin/reload`; it takes nothing from the client but the key."""

    @app.post(
        "/v1/admin/reload",
        response_model=Reloaded,
        responses=errors("unauthorized", "not_reloaded", "internal"),
        name="reload",
    )
    async def reload_bundle() -> JSONResponse:
        """Load and verify the bundle at the server's path, and switch all workers to it at once."""
        before = models.current.id
        try:
            after = await reload()
        except ScdaError as error:
            raise RequestError("not_reloaded", str(error)) from None
        return JSONResponse(dataclasses.asdict(Reloaded(after, before)))
