"""The route `GET /v1/exemplars/{class_id}/{n}`."""

from typing import Annotated

from fastapi import FastAPI, Query, Request
from fastapi import Path as PathParameter
from fastapi.responses import Response

from scda.serve.http.errors import ErrorBody
from scda.serve.http.openapi import FILE, errors
from scda.serve.http.served.exemplars import ROUTE
from scda.serve.http.served.switch import ModelSwitch

_MODEL = Query(description="Id of the model that the exemplar must belong to; empty for any")
_JPEG = {"content": {"image/jpeg": {"schema": FILE}}, "description": "The exemplar"}


def serve_exemplars(app: FastAPI, models: ModelSwitch) -> None:
    """Add `GET /v1/exemplars/{class_id}/{n}`."""

    @app.get(
        ROUTE,
        response_class=Response,
        responses={
            200: _JPEG,
            304: {"description": "The exemplar has the ETag in If-None-Match"},
            **errors("unauthorized", "not_found"),
            "default": {"model": ErrorBody},
        },
    )
    async def exemplar(
        request: Request,
        class_id: str,
        number: Annotated[int, PathParameter(alias="n", ge=0)],
        model: Annotated[str, _MODEL] = "",
    ) -> Response:
        """Return an exemplar of a class as a small JPEG; number 0 is the most typical one."""
        found = models.current.exemplars.exemplar(class_id, number, model_id=model)
        # An address without a model shows another image when another bundle is served.
        cached = "max-age=31536000, immutable" if model else "no-cache"
        headers = {"ETag": found.tag, "Cache-Control": f"private, {cached}"}
        if found.tag in request.headers.get("if-none-match", ""):
            return Response(status_code=304, headers=headers)
        return Response(found.data, media_type="image/jpeg", headers=headers)
