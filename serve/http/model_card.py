"""What `GET /v1/model` says: what is served, and within which limits."""

import dataclasses
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

from fastapi import FastAPI
from fastapi.responses import JSONResponse

from scda.models.bundle import ClassInfo
from scda.models.names import Names
from scda.models.predictor import Predictor
from scda.serve.http.inference_queue import InferenceQueue
from scda.serve.http.openapi import errors
from scda.serve.http.settings import Settings


@dataclass(frozen=True, kw_only=True)
class ClassCard:
    """One output of the model, as it is called now."""

    class_id: str
    label: str
    kind: str  # known | discovered
    answered_as: str  # another id once merged; `unknown` once dropped
    size: int  # target images that training gave it
    mean_confidence: float  # over those images, 0 to 1
    nearest_known: str | None  # of a discovered class: the id of the closest known one


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What a request may ask for."""

    max_bytes: int  # of one image, and of all images of one request
    max_pixels: int
    max_files: int
    queue: int  # requests at once, in one worker
    timeout_seconds: float


@dataclass(frozen=True, kw_only=True)
class ModelCard:
    """What is served."""

    model_id: str
    schema_version: int
    status: tuple[str, ...]  # `ok`, or what training doubted
    names_version: int
    classes: tuple[ClassCard, ...]  # in the order of the model's outputs
    preprocessing: dict[str, Any]  # as the bundle keeps it
    provider: str  # what runs the model: cpu or cuda
    limits: Limits
    version: str  # of scda


def serve_model_card(app: FastAPI, queue: InferenceQueue) -> None:
    """Add `GET /v1/model`."""

    @app.get("/v1/model", response_model=ModelCard, responses=errors("unauthorized", "internal"))
    async def model() -> JSONResponse:
        """Say what is served: classes, limits, preprocessing, provider, ids."""
        queue.names.refresh()
        return JSONResponse(dataclasses.asdict(model_card(queue.predictor, queue.settings)))


def model_card(predictor: Predictor, settings: Settings) -> ModelCard:
    """Return what is said of a loaded bundle."""
    manifest, names = predictor.manifest, predictor.names
    limits = {field.name: getattr(settings, field.name) for field in dataclasses.fields(Limits)}
    return ModelCard(
        model_id=manifest.id,
        schema_version=manifest.schema_version,
        status=manifest.status,
        names_version=names.version,
        classes=tuple(_class_card(info, names) for info in manifest.classes),
        preprocessing=manifest.preprocessing.to_json(),
        provider=predictor.session.provider,
        limits=Limits(**limits),
        version=version("scda"),
    )


def _class_card(info: ClassInfo, names: Names) -> ClassCard:
    return ClassCard(
        class_id=info.class_id,
        label=names.label(info),
        kind=info.kind,
        answered_as=names.resolve(info.class_id),
        size=info.size,
        mean_confidence=info.mean_confidence,
        nearest_known=info.nearest_known,
    )
