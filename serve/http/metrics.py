"""The Prometheus metrics of the server; docs/serving.md explains each of them.

Every label has a small, fixed set of values: nothing that a client sends becomes a label.
"""

import os

from fastapi import Response
from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    generate_latest,
)
from prometheus_client.multiprocess import MultiProcessCollector
from starlette.types import Scope

from scda.models.names import UNKNOWN
from scda.models.predictor import Prediction

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_IMAGES = (1, 2, 4, 8, 16, 32, 64, 128)
# BentoML sets it for several workers: each writes its metrics there, and any can sum them.
_FOLDER = "PROMETHEUS_MULTIPROC_DIR"


class Metrics:
    """The metrics of one application, in a registry of their own."""

    def __init__(self, codes: tuple[str, ...]) -> None:
        """Create every metric with the value 0, so that a rate includes the first event.

        Args:
            codes: Every error code.
        """
        self._registry = CollectorRegistry()
        self._requests = self._histogram(
            "request", "Time from a request to its answer.", ("route", "status")
        )
        self.wait = self._histogram(
            "queue_wait", "Time that an image waits for a thread.", ("stage",)
        )
        self.decode = self._histogram(
            "decode", "Time to turn the bytes of an image into the model's input."
        )
        self.inference = self._histogram(
            "inference", "Time of one call of the model, for a whole batch."
        )
        self.batch = Histogram(
            "scda_batch_images",
            "Images per call of the model.",
            buckets=_IMAGES,
            registry=self._registry,
        )
        self._images = self._counter("images", "Images with a prediction.", ("kind", "outlier"))
        self._errors = self._counter("errors", "Refused requests and images.", ("code",))
        for kind in ("known", "discovered", UNKNOWN):
            for outlier in ("false", "true"):
                self._images.labels(kind, outlier)
        for code in codes:
            self._errors.labels(code)
        for stage in ("decode", "model"):
            self.wait.labels(stage)
        self.names_version = self._gauge("names_version", "Version of the names in use.", ())
        self.names_refused = self._gauge(
            "names_refused", "1 while names.json is damaged or another model's, and not in use.", ()
        )
        self.bundle_replaced = self._gauge(
            "bundle_replaced", "1 while the bundle's folder no longer holds the served model.", ()
        )
        self._model = self._gauge(
            "model_info",
            "1 for the served model and its provider, 0 for one served before.",
            ("model_id", "provider"),
        )
        self._shown: tuple[str, str] | None = None

    def show_model(self, model_id: str, provider: str) -> None:
        """Show which model is served, and where it runs."""
        if self._shown:
            self._model.labels(*self._shown).set(0)
        self._shown = (model_id, provider)
        self._model.labels(*self._shown).set(1)

    def count_request(self, scope: Scope, status: int, seconds: float) -> None:
        """Count an answered request; a path without a route counts as `other`."""
        route = getattr(scope.get("route"), "path", "other")
        self._requests.labels(route, str(status)).observe(seconds)

    def count_image(self, answer: Prediction) -> None:
        """Count an image with a prediction."""
        self._images.labels(answer.kind, str(answer.outlier).lower()).inc()

    def count_error(self, code: str) -> None:
        """Count a refused request, or a refused image of a batch."""
        self._errors.labels(code).inc()

    def respond(self) -> Response:
        """Return the metrics of all workers, in the text format."""
        registry = self._registry
        if _FOLDER in os.environ:
            registry = CollectorRegistry()
            MultiProcessCollector(registry)
        return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)

    def _counter(self, name: str, text: str, labels: tuple[str, ...]) -> Counter:
        return Counter(f"scda_{name}", text, labels, registry=self._registry)

    def _gauge(self, name: str, text: str, labels: tuple[str, ...]) -> Gauge:
        name, registry = f"scda_{name}", self._registry
        # Without a mode, every process would add a label of its own.
        return Gauge(name, text, labels, multiprocess_mode="mostrecent", registry=registry)

    def _histogram(self, name: str, text: str, labels: tuple[str, ...] = ()) -> Histogram:
        name = f"scda_{name}_seconds"
        return Histogram(name, text, labels, buckets=_SECONDS, registry=self._registry)
