"""The BentoML service: one bundle, the application of app.py at "/", health.

`bentoml serve scda.serve.service:Classifier` with SCDA_BUNDLE set; `scda-adapt serve` does that.
"""

import gc
import os
import sys

import bentoml
from fastapi import FastAPI
from starlette.types import Receive, Scope, Send

from scda.models.bundle import bundle_folder
from scda.models.errors import ScdaError
from scda.models.predictor import load_predictor
from scda.serve.http.application import create_app
from scda.serve.http.settings import Settings

NAME = "scda"
# BentoML's own limit stands above ours, which answers in our shape.
_TRAFFIC = {"timeout": 60}  # seconds
# Its access log breaks the answer to a Content-Type that is not UTF-8, so it must not print that.
_LOGGING = {"access": {"request_content_type": False}}
# Its metrics have a label for every path that anybody asks for, and stand before our key.
_METRICS = {"enabled": False}


async def application(scope: Scope, receive: Receive, send: Send) -> None:
    """Pass a request to the application of this worker.

    A plain function, because of a Starlette application BentoML would ask every route first and
    answer 404 and 405 by itself.
    """
    await bentoml.get_current_service().app(scope, receive, send)


def load() -> FastAPI:
    """Return what the environment asks for, or end the process with one line that says why not."""
    try:
        settings = Settings.from_environment(os.environ)
        folder = bundle_folder(settings.bundle)
        # Calls side by side on one thread each: threads that share a call wait for each other.
        predictor = load_predictor(folder, provider=settings.provider, threads=1, spinning=False)
        return create_app(predictor, settings)
    except ScdaError as error:
        print(f"scda: {error}", file=sys.stderr)
        raise SystemExit(error.exit_code) from None


@bentoml.asgi_app(application, path="/")
@bentoml.service(name=NAME, traffic=_TRAFFIC, logging=_LOGGING, metrics=_METRICS)
class Classifier:
    """Answers what images show, by the bundle in SCDA_BUNDLE."""

    # Loads once before there are workers: a worker that fails would be started again and again.
    check = bentoml.on_deployment(load)

    def __init__(self) -> None:
        """Load and check the bundle; the worker is not ready before."""
        self.app = load()
        # What was loaded stays: to look through all of it for garbage, while the threads of the
        # model hold the processor, was seen to keep every request waiting for 0.2 seconds.
        gc.freeze()
        # A collection that finds little left makes Python collect often: it waits for a quarter
        # more objects than the last one found.
        gc.collect()
