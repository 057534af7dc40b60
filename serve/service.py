"""The BentoML service: the application of one bundle at "/", beside BentoML's health routes.

Set SCDA_BUNDLE and start it with `bentoml serve scda.serve.service:Classifier`. `scda-adapt serve`
runs the same application without BentoML.
"""

import logging
import os
import sys
from contextlib import suppress

import bentoml
from fastapi import FastAPI
from starlette.types import ASGIApp, Receive, Scope, Send

from scda.models.errors import ScdaError
from scda.serve.http.logs import configure_logging
from scda.serve.http.settings import Settings, unknown_settings

logger = logging.getLogger(__name__)

NAME = "scda"
# BentoML's time limit is above ours for a body and its answer, whose errors have our shape.
_TRAFFIC = {"timeout": 75}  # seconds
# BentoML's access log writes paths as they come, line breaks and escapes of a terminal included.
_LOGGING = {"access": {"enabled": False}}
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
    ours = {key: value for key, value in scope.items() if key != "route"}  # that is BentoML's, "/"
    await bentoml.get_current_service().app(ours, receive, send)


class LineBreaks:
    """Middleware that passes paths with a line break on, which no route of BentoML matches."""

    def __init__(self, app: ASGIApp) -> None:
        """Wrap BentoML's application."""
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request to our application, or to BentoML's."""
        app = application if "\n" in scope.get("path", "") else self.app
        await app(scope, receive, send)


def load() -> FastAPI:
    """Return the application that the environment configures, or exit with a one-line error."""
    # With this variable, prometheus_client keeps every metric in a file of BentoML's home, and a
    # full disk ends the process (SIGBUS). It looks when it is imported, so nothing above does.
    os.environ.pop("PROMETHEUS_MULTIPROC_DIR", None)
    from scda.serve.http.application import load_app

    try:
        settings = Settings.from_environment(os.environ)
        configure_logging(settings.log, "scda")
        return load_app(settings)
    except ScdaError as error:
        print(f"scda: {error}", file=sys.stderr)
        raise SystemExit(error.exit_code) from None


def check() -> None:
    """Load the bundle before the workers start, and say what an operator should know."""
    settings = load().state.settings
    for warning in unknown_settings(os.environ):
        logger.warning(warning)
    if not (settings.api_key or settings.api_keys_file):
        logger.warning(
            "whoever reaches this server may use it without a key, and BentoML listens on every "
            "address unless --host says otherwise: set SCDA_API_KEY, or --host 127.0.0.1"
        )


@bentoml.asgi_app(application, path="/")
@bentoml.service(name=NAME, traffic=_TRAFFIC, logging=_LOGGING, metrics=_METRICS)
class Classifier:
    """Classifies images with the bundle in SCDA_BUNDLE."""

    # Once, before the workers start: a worker that fails would be started again for ever.
    check = bentoml.on_deployment(check)

    def __init__(self) -> None:
        """Load and check the bundle; the worker is ready afterwards."""
        self.app = load()


Classifier.add_asgi_middleware(LineBreaks)  # type: ignore[attr-defined]  # of a decorated class
