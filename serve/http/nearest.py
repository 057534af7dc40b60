"""What an image is near to: classes with their pictures, and images of the target."""

import dataclasses
from dataclasses import dataclass

from fastapi import FastAPI, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import JSONResponse

from scda.models.bundle import Manifest
from scda.models.errors import ImageError
from scda.models.names import UNKNOWN
from scda.models.predictor import Prediction
from scda.serve.http.body import read_image_bytes
from scda.serve.http.exemplars import Exemplars
from scda.serve.http.inference_queue import Desk, Seen
from scda.serve.http.neighbours import NearImage, Neighbours
from scda.serve.http.openapi import ONE_IMAGE, errors


@dataclass(frozen=True)
class NearClass:
    """A class near to the image, as it is called now."""

    class_id: str
    label: str
    kind: str  # known | discovered | unknown
    distance: float  # 1 - cosine, 0 to 2
    exemplars: tuple[str, ...]  # where its pictures are on this server, most typical first


@dataclass(frozen=True)
class Nearest:
    """What one image is near to, beside what it was taken for."""

    prediction: Prediction
    classes: tuple[NearClass, ...]  # nearest first
    images: tuple[NearImage, ...]  # nearest first; none where the bundle has no neighbours


def serve_nearest(app: FastAPI, desk: Desk, exemplars: Exemplars, neighbours: Neighbours) -> None:
    """Add `POST /v1/nearest`."""

    @app.post("/v1/nearest", response_model=Nearest, responses=errors(), openapi_extra=ONE_IMAGE)
    async def nearest(request: Request) -> JSONResponse:
        """Say what one image is near to; it is given as to `/v1/predict`."""
        async with desk.place():
            data = await read_image_bytes(request, max_bytes=desk.settings.max_bytes)
            (seen,) = await desk.look([data])
            if isinstance(seen, ImageError):
                raise seen
            images = await run_in_threadpool(neighbours.nearest, seen.features)
        classes = near_classes(desk.predictor.manifest, exemplars, seen)
        return JSONResponse(dataclasses.asdict(Nearest(seen.prediction, classes, images)))


def near_classes(manifest: Manifest, exemplars: Exemplars, seen: Seen) -> tuple[NearClass, ...]:
    """Return the classes nearest to an image, with the names that its prediction has."""
    kinds = {info.class_id: info.kind for info in manifest.classes}
    return tuple(
        NearClass(
            **near,
            kind=kinds.get(near["class_id"], UNKNOWN),
            exemplars=exemplars.addresses(near["class_id"], seen.names),
        )
        for near in seen.prediction.nearest
    )
