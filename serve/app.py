"""The HTTP application: limits, then the predictor's answer, as JSON; see docs/serving.md."""

import dataclasses
from importlib.metadata import version
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse

from scda.models.bundle import ClassInfo
from scda.models.errors import ImageError
from scda.models.predictor import Prediction, Predictor
from scda.serve.answer import Answer
from scda.serve.body import read_form_files, read_image_bytes
from scda.serve.desk import Desk
from scda.serve.door import Door
from scda.serve.http_errors import STATUS, ErrorBody, error_body, shape_errors
from scda.serve.metrics import Metrics
from scda.serve.renaming import NamesWatch
from scda.serve.settings import Settings


@dataclasses.dataclass(frozen=True)
class Results:
    """The answers to several images, in their order."""

    results: list[Prediction | ErrorBody]


METRICS = "/metrics"
_FILE = {"type": "string", "format": "binary"}
_ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": ErrorBody} for status in sorted({*STATUS.values()} - {404, 405})
}


def create_app(predictor: Predictor, settings: Settings) -> FastAPI:
    """Return the application for one loaded bundle.

    Args:
        predictor: Answers every request.
        settings: Its bundle, threads and provider were used to load the predictor.
    """
    app = FastAPI(
        title="scda",
        version=version("scda"),
        openapi_url="/docs.json",
        docs_url=None,  # the pages would load their scripts from elsewhere
        redoc_url=None,
        redirect_slashes=False,
    )
    metrics = app.state.metrics = Metrics(predictor, tuple(STATUS))
    app.add_api_route(METRICS, metrics.respond, include_in_schema=False)
    public = (METRICS,) if settings.public_metrics else ()
    app.add_middleware(Door, api_key=settings.api_key, metrics=metrics, public=public)
    shape_errors(app)
    desk, names = Desk(predictor, settings, metrics), NamesWatch(predictor)

    @app.post(
        "/v1/predict",
        response_model=Prediction,
        responses=_ERRORS,
        openapi_extra=_body({"application/octet-stream": _FILE, **_form("image", _FILE)}),
    )
    async def predict(request: Request) -> JSONResponse:
        """Say what one image shows: form field `image`, or the file itself as the body."""
        async with desk.place():
            data = await read_image_bytes(request, max_bytes=settings.max_bytes)
            names.refresh()
            (answer,) = await desk.answer([data])
        if isinstance(answer, ImageError):
            raise answer
        return JSONResponse(answer.to_json())

    @app.post(
        "/v1/predict_batch",
        response_model=Results,
        responses=_ERRORS,
        openapi_extra=_body(_form("images", {"type": "array", "items": _FILE})),
    )
    async def predict_batch(request: Request) -> JSONResponse:
        """Say what several images show; a bad one has an error in its place."""
        limits = {"max_bytes": settings.max_bytes, "max_files": settings.max_files}
        async with desk.place():
            files = await read_form_files(request, "images", **limits)
            names.refresh()
            answers = await desk.answer(files)
        return JSONResponse({"results": [_result(request, answer) for answer in answers]})

    @app.get("/v1/model", response_model=dict[str, Any])
    async def model() -> JSONResponse:
        """Say what is served: classes, limits, preprocessing, provider, ids."""
        names.refresh()
        return JSONResponse(describe_model(predictor, settings))

    return app


def describe_model(predictor: Predictor, settings: Settings) -> dict[str, Any]:
    """Return what `GET /v1/model` answers."""
    manifest = predictor.manifest
    limits = ("max_bytes", "max_pixels", "max_files", "queue", "timeout_seconds")
    return {
        "model_id": manifest.id,
        "schema_version": manifest.schema_version,
        "status": list(manifest.status),
        "names_version": predictor.names.version,
        "classes": [_class(predictor, info) for info in manifest.classes],
        "preprocessing": manifest.preprocessing.to_json(),
        "provider": predictor.session.provider,
        "limits": {name: getattr(settings, name) for name in limits},
        "version": version("scda"),
    }


def _class(predictor: Predictor, info: ClassInfo) -> dict[str, Any]:
    names = predictor.names
    return {
        "class_id": info.class_id,
        "label": names.label(info),
        "kind": info.kind,
        "answered_as": names.target(info.class_id),  # another id once merged or dropped
        "size": info.size,
        "mean_confidence": info.mean_confidence,
        "nearest_known": info.nearest_known,
    }


def _result(request: Request, answer: Answer) -> dict[str, Any]:
    if isinstance(answer, ImageError):
        return error_body(request, answer.code, str(answer))
    return answer.to_json()


def _form(field: str, schema: dict[str, Any]) -> dict[str, Any]:
    form = {"type": "object", "required": [field], "properties": {field: schema}}
    return {"multipart/form-data": form}


def _body(schemas: dict[str, Any]) -> dict[str, Any]:
    content = {kind: {"schema": schema} for kind, schema in schemas.items()}
    return {"requestBody": {"required": True, "content": content}}
