"""The HTTP application: the routes of one loaded bundle; see docs/serving.md."""

import dataclasses
import gc
import sys
from collections.abc import Awaitable, Callable
from functools import partial
from importlib.metadata import version
from typing import Any, TypeAlias

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response

from scda.models.errors import ImageError
from scda.models.predictor import Prediction, Predictor
from scda.serve.http.bodies.uploads import read_image, read_images
from scda.serve.http.cors import allow_origins
from scda.serve.http.document import complete
from scda.serve.http.errors import STATUS, ErrorBody, error_body, shape_errors
from scda.serve.http.exemplar_route import serve_exemplars
from scda.serve.http.health import HEALTH, serve_health
from scda.serve.http.inference_queue import InferenceQueue
from scda.serve.http.keys import Keys
from scda.serve.http.metrics import Metrics
from scda.serve.http.model_card import serve_model_card
from scda.serve.http.nearest import serve_nearest
from scda.serve.http.openapi import ONE_IMAGE, SCHEMAS, SEVERAL_IMAGES, errors
from scda.serve.http.page import PUBLIC, serve_page
from scda.serve.http.reload_route import Reload, serve_reload
from scda.serve.http.requests.drain import Drain
from scda.serve.http.requests.middleware import RequestMiddleware
from scda.serve.http.served.model import ServedModel, load_for_serving
from scda.serve.http.served.switch import ModelSwitch
from scda.serve.http.settings import Settings
from scda.serve.http.snapshots import Snapshot
from scda.serve.http.v2.routes import HEALTH as V2_HEALTH
from scda.serve.http.v2.routes import serve_open_inference
from scda.serve.http.v2.schema import SCHEMAS as V2_SCHEMAS
from scda.serve.imaging import Answer


@dataclasses.dataclass(frozen=True)
class Results:
    """The predictions or errors of several images, in their order."""

    results: list[Prediction | ErrorBody]


METRICS = "/metrics"
_SWITCH_SECONDS = 0.001

Snapshots: TypeAlias = Callable[[], Awaitable[list[Snapshot]]]


def load_app(
    settings: Settings, *, reload: Reload | None = None, snapshots: Snapshots | None = None
) -> FastAPI:
    """Return the application for the bundle that the settings name, verified.

    Further arguments are those of `create_app`.

    Raises:
        UsageError: If there is no bundle, or the provider is not available.
        GateError: If the bundle is damaged, fails the parity check, or is of another model.
    """
    predictor = load_for_serving(settings.bundle, settings, model_id=settings.model_id)
    app = create_app(predictor, settings, reload=reload, snapshots=snapshots)
    # The loaded objects live as long as the process. A garbage collection over all of them kept
    # every request waiting for 0.2 seconds while the threads of the model used the processor.
    gc.freeze()
    # Python collects fully once the objects have grown by a quarter since the last time. With
    # the loaded objects left out, a collection now makes the later ones frequent and short.
    gc.collect()
    # A thread that reads the many small pieces of a file in Python hands on the interpreter after
    # this time, and an answer needs it about ten times. The default is 5 milliseconds.
    sys.setswitchinterval(_SWITCH_SECONDS)
    return app


def create_app(
    predictor: Predictor,
    settings: Settings,
    *,
    reload: Reload | None = None,
    snapshots: Snapshots | None = None,
) -> FastAPI:
    """Return the application for one loaded bundle; `state.models` can switch to another one.

    Args:
        predictor: The loaded bundle.
        settings: Limits of the server; the bundle and provider were used to load the predictor.
        reload: Switches every worker of the server; with a key, clients can ask for it.
        snapshots: As in `Metrics`.

    Raises:
        UsageError: If the file of keys cannot be used.
        GateError: If the exemplars or neighbours of the bundle are damaged or do not match it.
    """
    app = FastAPI(
        title="scda",
        version=version("scda"),
        openapi_url="/docs.json",
        docs_url=None,  # FastAPI's pages load their scripts from other hosts
        redoc_url=None,
        redirect_slashes=False,
        generate_unique_id_function=lambda route: (
            route.name
        ),  # the function name in generated clients
    )
    app.state.settings, app.state.drain = settings, Drain()
    metrics = app.state.metrics = Metrics(STATUS, snapshots)
    serve = partial(ServedModel, settings=settings, metrics=metrics)
    models = app.state.models = ModelSwitch(
        serve(predictor), lambda bundle: serve(load_for_serving(bundle, settings)), metrics
    )
    _serve_metrics(app, models, metrics)
    keys = Keys(settings.api_key, settings.api_keys_file)
    app.add_middleware(
        RequestMiddleware,
        keys=keys,
        hosts=settings.allowed_hosts,
        metrics=metrics,
        drain=app.state.drain,
        public={*PUBLIC, METRICS} if settings.public_metrics else PUBLIC,
        health={*HEALTH, *V2_HEALTH},
    )
    allow_origins(app, settings.cors_origins)
    shape_errors(app)
    queue = InferenceQueue(models, settings, metrics)
    _serve_predictions(app, queue)
    serve_nearest(app, queue)
    serve_open_inference(app, queue)
    serve_model_card(app, models, settings)
    serve_exemplars(app, models)
    if reload and keys.needed:
        serve_reload(app, models, reload)
    serve_page(app)
    serve_health(app)
    schemas = {**SCHEMAS, **V2_SCHEMAS}
    complete(app, schemas, needs_key=keys.needed, public={*PUBLIC, *V2_HEALTH})
    return app


def _serve_metrics(app: FastAPI, models: ModelSwitch, metrics: Metrics) -> None:
    @app.get(METRICS, include_in_schema=False)
    async def show_metrics() -> Response:
        models.current.watcher.refresh()
        return await metrics.respond()


def _serve_predictions(app: FastAPI, queue: InferenceQueue) -> None:
    @app.post("/v1/predict", response_model=Prediction, responses=errors(), openapi_extra=ONE_IMAGE)
    async def predict(request: Request) -> JSONResponse:
        """Classify one image, sent as the field `image` of a form or of JSON, or as the body."""
        async with queue.admit(request, read_image) as data:
            (answer,) = await queue.predict(request, [data])
        if isinstance(answer, ImageError):
            raise answer
        return JSONResponse(answer.to_json())

    @app.post(
        "/v1/predict_batch",
        response_model=Results,
        responses=errors(),
        openapi_extra=SEVERAL_IMAGES,
    )
    async def predict_batch(request: Request) -> JSONResponse:
        """Classify several images, in order; a bad image has an error in its place."""
        async with queue.admit(request, read_images) as files:
            answers = await queue.predict(request, files)
        return JSONResponse({"results": [_result(request, answer) for answer in answers]})


def _result(request: Request, answer: Answer) -> dict[str, Any]:
    if isinstance(answer, ImageError):
        return error_body(request, answer.code, str(answer))
    return answer.to_json()
