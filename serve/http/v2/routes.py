"""The routes of the Open Inference Protocol: health, metadata and inference of the one model."""

import json
from importlib.metadata import version
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response

from scda.models.errors import ImageError
from scda.models.predictor import Prediction
from scda.serve.http.errors import RequestError
from scda.serve.http.health import check_ready
from scda.serve.http.inference_queue import InferenceQueue
from scda.serve.http.v2.requests import HEADER_LENGTH, InferRequest, read_request
from scda.serve.http.v2.schema import (
    ANSWERS,
    ERRORS,
    REQUEST,
    InferAnswer,
    Live,
    ModelMetadata,
    Ready,
    ServerMetadata,
    TensorMetadata,
)
from scda.serve.http.v2.tensors import OUTPUTS, output_tensors

MODEL = "scda"  # the name of the model in paths
HEALTH = frozenset({"/v2/health/live", "/v2/health/ready"})  # paths that need no key
_MODEL_PATH = f"/v2/models/{MODEL}"


def serve_open_inference(app: FastAPI, queue: InferenceQueue) -> None:
    """Add the routes under `/v2`."""
    _serve_metadata(app, queue)

    @app.post(
        f"{_MODEL_PATH}/infer",
        response_model=InferAnswer,
        responses=ANSWERS,
        openapi_extra=REQUEST,
        name="infer",
    )
    async def infer(request: Request) -> Response:
        """Classify the images of the input `image`; one bad image refuses the request."""
        async with queue.admit(request, read_request) as asked:
            answers = await queue.predict(request, asked.images)
        predictions = []
        for i, answer in enumerate(answers):
            if isinstance(answer, ImageError):
                raise RequestError(answer.code, f"element {i} of 'image': {answer}")
            predictions.append(answer)
        return _answer(asked, predictions)


def _serve_metadata(app: FastAPI, queue: InferenceQueue) -> None:
    tensors = {
        "inputs": (TensorMetadata("image", "BYTES", (-1,)),),
        "outputs": tuple(TensorMetadata(name, kind, (-1,)) for name, kind in OUTPUTS.items()),
    }

    @app.get("/v2", response_model=ServerMetadata, responses=ERRORS, name="server_metadata")
    async def server() -> ServerMetadata:
        """Describe the server."""
        return ServerMetadata(MODEL, version("scda"), ("binary_tensor_data",))

    @app.get("/v2/health/live", response_model=Live, name="server_live")
    async def live() -> Live:
        """Say that the server runs."""
        return Live(live=True)

    @app.get("/v2/health/ready", response_model=Ready, responses=ERRORS, name="server_ready")
    @app.get(f"{_MODEL_PATH}/ready", response_model=Ready, responses=ERRORS, name="model_ready")
    async def ready(request: Request) -> Ready:
        """Say that predictions are answered."""
        check_ready(request.app)
        return Ready(ready=True)

    @app.get(_MODEL_PATH, response_model=ModelMetadata, responses=ERRORS, name="model_metadata")
    async def model() -> ModelMetadata:
        """Describe the tensors of the model; `GET /v1/model` describes its classes."""
        return ModelMetadata(MODEL, (queue.models.current.id,), "onnxruntime_onnx", **tensors)


def _answer(asked: InferRequest, predictions: list[Prediction]) -> Response:
    """Return the outputs as JSON, and behind it those that were wanted in the binary form."""
    outputs, parts = [], []
    for tensor in output_tensors(predictions, list(asked.outputs)):
        if asked.outputs[tensor.name]:
            parts.append(tensor.to_bytes())
            size = {"binary_data_size": len(parts[-1])}
            outputs.append({**tensor.head(), "parameters": size})
        else:
            outputs.append({**tensor.head(), "data": tensor.values})
    body: dict[str, Any] = {"model_name": MODEL, "model_version": predictions[0].model_id}
    body |= {"outputs": outputs} if asked.id is None else {"id": asked.id, "outputs": outputs}
    if not parts:
        return JSONResponse(body)
    text = json.dumps(body, ensure_ascii=False).encode()
    return Response(
        b"".join([text, *parts]),
        media_type="application/octet-stream",
        headers={HEADER_LENGTH: str(len(text))},
    )
