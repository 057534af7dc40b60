"""The BentoML service: the application of one bundle at "/", beside BentoML's health routes.

Set SCDA_BUNDLE and start it with `bentoml serve scda.serve.service:Classifier`. `scda-adapt serve`
runs the same application without BentoML.
"""

import os
import sys
from contextlib import suppress

import bentoml
from fastapi import FastAPI
from starlette.types import Receive, Scope, Send

from scda.models.errors import ScdaError
from scda.serve.http.application import load_app
from scda.serve.http.settings import Settings

NAME = "scda"
# BentoML's time limit is above ours, whose error has the documented shape.
_TRAFFIC = {"timeout": 60}  # seconds
# BentoML's access log fails on a Content-Type that is not UTF-8, and with it the whole request.
_LOGGING = {"access": {"request_content_type": False}}
# BentoML's metrics have one label per requested path, and are readable without the API key.
_METRICS = {"enabled": False}

# No usage reports to BentoML's makers, however the service is started. `bentoml serve` reads the
# variable before it imports this module, and remembers the answer.
os.environ.setdefault("BENTOML_DO_NOT_TRACK", "True")
with suppress(ImportError, AttributeError):  # private to BentoML, so another version may lack it
    from bentoml._internal.utils.analytics import usage_stats

    usage_stats.do_not_track.cache_clear()


async def application(scope: Scope, receive: Receive, send: Send) -> None:
    """Pass a request to the application of this worker.

    This is a plain function because BentoML would match the routes of a Starlette application
    itself and answer 404 and 405 in its own shape.
    """
    await bentoml.get_current_service().app(scope, receive, send)


def load() -> FastAPI:
    """Return the application that the environment configures, or exit with a one-line error."""
    try:
        return load_app(Settings.from_environment(os.environ))
    except ScdaError as error:
        print(f"scda: {error}", file=sys.stderr)
        raise SystemExit(error.exit_code) from None


@bentoml.asgi_app(application, path="/")
@bentoml.service(name=NAME, traffic=_TRAFFIC, logging=_LOGGING, metrics=_METRICS)
class Classifier:
    """Classifies images with the bundle in SCDA_BUNDLE."""

    # Loads the bundle once before the workers start: a failing worker would be restarted forever.
    check = bentoml.on_deployment(load)

    def __init__(self) -> None:
        """Load and check the bundle; the worker is ready afterwards."""
        self.app = load()
