"""The Prometheus metrics of the server; docs/serving.md explains each of them.

Every label has a small, fixed set of values: nothing that a client sends becomes a label. All
begin with the value 0, so that a rate includes the first event.
"""

import os
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path

from fastapi import Response
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.types import Scope

from scda.models.bundle import Manifest
from scda.models.names import UNKNOWN, Names
from scda.models.predictor import Prediction
from scda.serve.http.instruments import Instruments, as_text
from scda.serve.http.served.drift import DriftMetrics
from scda.serve.http.snapshots import Snapshot, add

_SHARES = tuple(tenth / 10 for tenth in range(1, 11))
_IMAGES = (1, 2, 4, 8, 16, 32, 64, 128)


class RequestMetrics:
    """Requests, their errors and their bodies.

    Attributes:
        in_progress: Requests that hold a place in the queue.
        body_bytes: Bytes of bodies in memory.
        connections: Open connections.
        refused_connections: Connections above a limit, by `limit`.
    """

    def __init__(self, make: Instruments, codes: Iterable[str]) -> None:
        """Create the metrics; `codes` are all codes of errors."""
        text = "Time from a request to its answer."
        self._answered = make.seconds("request", text, "route", "status")
        self._errors = make.counter("errors", "Refused requests and images.", "code")
        for code in codes:
            self._errors.labels(code)
        text = "Requests that hold a place in the queue."
        self.in_progress = make.gauge("requests_in_progress", text)
        self.body_bytes = make.gauge("body_bytes", "Bytes of request bodies in memory.")
        self.connections = make.gauge("connections", "Open connections.")
        text = "Connections above the limit of one client, or of all."
        self.refused_connections = make.counter("refused_connections", text, "limit")
        for limit in ("client", "all"):
            self.refused_connections.labels(limit)

    def count(self, scope: Scope, status: int, seconds: float) -> None:
        """Count an answered request; a path without a route counts as `other`."""
        self._answered.labels(route_of(scope), str(status)).observe(seconds)

    def count_error(self, code: str) -> None:
        """Count a refused request, or a refused image of a batch."""
        self._errors.labels(code).inc()


class ImageMetrics:
    """Images on their way to an answer, and what was answered.

    Attributes:
        in_progress: Images that wait, are decoded or are in the model.
        wait: Seconds that an image waits, by `stage`.
        decode: Seconds from an image's bytes to the model's input.
        inference: Seconds of one call of the model.
        batch: Images per call of the model.
    """

    def __init__(self, make: Instruments) -> None:
        """Create the metrics."""
        text = "Images that are read, wait, are decoded or in the model."
        self.in_progress = make.gauge("images_in_progress", text)
        self.wait = make.seconds("queue_wait", "Time that an image waits for a thread.", "stage")
        for stage in ("decode", "model"):
            self.wait.labels(stage)
        text = "Time to turn the bytes of an image into the model's input."
        self.decode = make.seconds("decode", text)
        text = "Time of one call of the model, for a whole batch."
        self.inference = make.seconds("inference", text)
        self.batch = make.histogram("batch_images", "Images per call of the model.", _IMAGES)
        self._answered = make.counter("images", "Images with a prediction.", "kind", "outlier")
        for kind in ("known", "discovered", UNKNOWN):
            for outlier in ("false", "true"):
                self._answered.labels(kind, outlier)
        text = "Images with a prediction, by the class answered."
        self._classes = make.counter("class_images", text, "class_id")
        self._confidence = make.histogram("confidence", "Confidence of the predictions.", _SHARES)

    def count(self, answer: Prediction) -> None:
        """Count an image with a prediction."""
        self._answered.labels(answer.kind, str(answer.outlier).lower()).inc()
        self._classes.labels(answer.class_id).inc()
        self._confidence.observe(answer.confidence)


class ModelMetrics:
    """The served model, its names, and what it answers for its own target.

    Attributes:
        names_version: Version of the names in use.
        names_refused: 1 while names.json is damaged or another model's, and not in use.
        bundle_replaced: 1 while the bundle's folder no longer holds the served model.
    """

    def __init__(self, make: Instruments) -> None:
        """Create the metrics."""
        text = "1 for the served model and its provider, 0 for one served before."
        self._model = make.largest("model_info", text, "model_id", "provider")
        self._shown: tuple[str, str] | None = None
        text = "Share of outliers on the model's own target."
        self._outliers = make.largest("expected_outlier_share", text, "model_id")
        text = "Mean confidence on the model's own target."
        self._confidence = make.largest("expected_confidence", text, "model_id")
        text = "Share of a class on the model's own target."
        self._classes = make.largest("expected_class_share", text, "class_id")
        self.names_version = make.largest("names_version", "Version of the names in use.")
        text = "1 while names.json is damaged or another model's, and not in use."
        self.names_refused = make.largest("names_refused", text)
        text = "1 while the bundle's folder no longer holds the served model."
        self.bundle_replaced = make.largest("bundle_replaced", text)

    def show(self, model_id: str, provider: str) -> None:
        """Show which model is served, and where it runs."""
        if self._shown:
            self._model.labels(*self._shown).set(0)
        self._shown = (model_id, provider)
        self._model.labels(*self._shown).set(1)

    def show_expected(self, manifest: Manifest, names: Names) -> None:
        """Show what the model answers for its own target; nothing for a bundle without it."""
        for gauge in (self._outliers, self._confidence, self._classes):
            gauge.clear()
        if (figures := manifest.on_target) is None:
            return
        self._outliers.labels(manifest.id).set(figures.outlier_share)
        self._confidence.labels(manifest.id).set(figures.mean_confidence)
        sizes: dict[str, int] = {}
        for info in manifest.classes:
            class_id = names.resolve(info.class_id)
            sizes[class_id] = sizes.get(class_id, 0) + info.size
        for class_id, size in sizes.items():
            self._classes.labels(class_id).set(size / figures.images)


class Metrics:
    """The metrics of one application.

    Attributes:
        requests: Those of requests.
        images: Those of images.
        model: Those of the served model.
        drift: Whether the answers differ from those for the model's own target.
    """

    def __init__(
        self,
        codes: Iterable[str],
        snapshots: Callable[[], Awaitable[list[Snapshot]]] | None = None,
    ) -> None:
        """Create all metrics.

        Args:
            codes: Every error code.
            snapshots: Returns the metrics of all processes that answer; None if this one is alone.
        """
        make = Instruments()
        self.requests, self.images = RequestMetrics(make, codes), ImageMetrics(make)
        self.model, self.drift = ModelMetrics(make), DriftMetrics(make)
        memory = make.gauge("resident_memory_bytes", "Memory of the workers, as in RSS.")
        memory.set_function(resident_memory)
        self.snapshot: Callable[[], Snapshot] = make.snapshot  # of this process
        self._snapshots = snapshots

    def count(self, answer: Prediction) -> None:
        """Count an image with a prediction."""
        self.images.count(answer)
        self.drift.add(answer)

    def show_expected(self, manifest: Manifest, names: Names) -> None:
        """Show what is expected of a model under its names, and compare answers with it."""
        self.model.show_expected(manifest, names)
        self.drift.begin(manifest, names)

    async def respond(self) -> Response:
        """Return the metrics of all workers, in the text format."""
        snapshots = await self._snapshots() if self._snapshots else [self.snapshot()]
        return Response(as_text(add(snapshots)), media_type=CONTENT_TYPE_LATEST)


def resident_memory() -> float:
    """Return the memory that this process holds, in bytes; 0 where the system does not tell."""
    try:
        pages = int(Path("/proc/self/statm").read_text("ascii").split()[1])
    except OSError:
        return 0.0
    return float(pages * os.sysconf("SC_PAGE_SIZE"))


def route_of(scope: Scope) -> str:
    """Return the route that a request has matched, or `other`."""
    return getattr(scope.get("route"), "path", "other")
