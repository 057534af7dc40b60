"""The nearest classes of an image, with their exemplars, and its nearest target images."""

import dataclasses
from dataclasses import dataclass

from fastapi import FastAPI, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import JSONResponse

from scda.models.bundle import Manifest
from scda.models.errors import ImageError
from scda.models.names import UNKNOWN
from scda.models.predictor import Prediction
from scda.serve.http.bodies.uploads import read_image
from scda.serve.http.inference_queue import InferenceQueue
from scda.serve.http.openapi import ONE_IMAGE, errors
from scda.serve.http.served.exemplars import Exemplars
from scda.serve.http.served.model import Inference
from scda.serve.http.served.target_index import NearImage


@dataclass(frozen=True)
class NearClass:
    """A class near the image, with its current name."""

    class_id: str
    label: str
    kind: str  # known | discovered | unknown
    distance: float  # 1 - cosine, 0 to 2
    exemplars: tuple[str, ...]  # URL paths of its images, the most typical first


@dataclass(frozen=True)
class Nearest:
    """The prediction of one image, and its nearest classes and target images."""

    prediction: Prediction
    classes: tuple[NearClass, ...]  # nearest first
    images: tuple[NearImage, ...]  # nearest first; empty if the bundle has no neighbours


def serve_nearest(app: FastAPI, queue: InferenceQueue) -> None:
    """Add `POST /v1/nearest`."""

    @app.post("/v1/nearest", response_model=Nearest, responses=errors(), openapi_extra=ONE_IMAGE)
    async def nearest(request: Request) -> JSONResponse:
        """Classify one image and find what it is near to; the image is sent as to `/v1/predict`."""
        async with queue.admit(request, read_image) as data:
            with queue.models.pinned() as model:
                (inference,) = await queue.infer(request, model, [data])
                if isinstance(inference, ImageError):
                    raise inference
                images = await run_in_threadpool(model.target_index.nearest, inference.features)
        classes = nearest_classes(model.predictor.manifest, model.exemplars, inference)
        return JSONResponse(dataclasses.asdict(Nearest(inference.prediction, classes, images)))


def nearest_classes(
    manifest: Manifest, exemplars: Exemplars, inference: Inference
) -> tuple[NearClass, ...]:
    """Return the classes nearest to an image, with the same names as its prediction."""
    kinds = {info.class_id: info.kind for info in manifest.classes}
    return tuple(
        NearClass(
            **near,
            kind=kinds.get(near["class_id"], UNKNOWN),
            exemplars=exemplars.addresses(near["class_id"], inference.names),
        )
        for near in inference.prediction.nearest
    )
