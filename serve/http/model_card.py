"""The route `GET /v1/model`: the model that is served, and the limits of the server."""

import dataclasses
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

from fastapi import FastAPI
from fastapi.responses import JSONResponse

from scda.models.bundle import ClassInfo
from scda.models.names import Names
from scda.models.predictor import Predictor
from scda.models.target_figures import TargetFigures
from scda.models.trust import ClassTrust, Trust
from scda.serve.http.openapi import errors
from scda.serve.http.served.switch import ModelSwitch
from scda.serve.http.settings import Settings


@dataclass(frozen=True, kw_only=True)
class ClassCard:
    """One class of the model, with its current name."""

    class_id: str
    label: str
    kind: str  # known | discovered
    answered_as: str  # its own id; another one if merged, `unknown` if dropped
    size: int  # number of target images of the class at training
    mean_confidence: float  # mean over those images, 0 to 1
    nearest_known: str | None  # id of the closest known class; None for a known class
    trust: ClassTrust | None  # None for a known class, and in an older bundle


@dataclass(frozen=True, kw_only=True)
class Limits:
    """The limits of a request."""

    max_bytes: int  # largest size of one image, and of all images of one request
    max_pixels: int
    max_files: int
    queue: int  # requests at the same time, per worker
    upload_seconds: float  # for the headers of a request, and then for its body
    timeout_seconds: float  # from the end of the body to the answer


@dataclass(frozen=True, kw_only=True)
class ModelCard:
    """The model, its classes and the limits of the server."""

    model_id: str
    schema_version: int
    status: tuple[str, ...]  # `ok`, or what training found doubtful
    trust: Trust | None  # estimate of the accuracy; None in an older bundle
    on_target: TargetFigures | None  # to compare a stream with; None in an older bundle
    names_version: int
    classes: tuple[ClassCard, ...]  # in the order of the model's outputs
    preprocessing: dict[str, Any]  # as in the bundle
    provider: str  # what runs the model: cpu, cuda or openvino
    limits: Limits
    version: str  # version of scda


def serve_model_card(app: FastAPI, models: ModelSwitch, settings: Settings) -> None:
    """Add `GET /v1/model`."""

    @app.get("/v1/model", response_model=ModelCard, responses=errors("unauthorized", "internal"))
    async def model() -> JSONResponse:
        """Describe the model: id, status, classes, preprocessing, provider and limits."""
        model = models.current
        model.watcher.refresh()
        return JSONResponse(dataclasses.asdict(model_card(model.predictor, settings)))


def model_card(predictor: Predictor, settings: Settings) -> ModelCard:
    """Return the model card of a loaded bundle."""
    manifest, names = predictor.manifest, predictor.names
    limits = {field.name: getattr(settings, field.name) for field in dataclasses.fields(Limits)}
    return ModelCard(
        model_id=manifest.id,
        schema_version=manifest.schema_version,
        status=manifest.status,
        trust=manifest.trust,
        on_target=manifest.on_target,
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
        trust=info.trust,
    )
