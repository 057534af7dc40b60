"""The Prometheus metrics of the server; docs/serving.md explains each of them.

Every label has a small, fixed set of values: nothing that a client sends becomes a label.
"""

import os
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path

from fastapi import Response
from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    generate_latest,
)
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from starlette.types import Scope

from scda.models.bundle import Manifest
from scda.models.names import UNKNOWN, Names
from scda.models.predictor import Prediction
from scda.serve.http.snapshots import Family, Snapshot, add

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_SHARES = tuple(tenth / 10 for tenth in range(1, 11))
_IMAGES = (1, 2, 4, 8, 16, 32, 64, 128)


class Metrics:
    """The metrics of one application, in a registry of their own."""

    def __init__(
        self,
        codes: tuple[str, ...],
        snapshots: Callable[[], Awaitable[list[Snapshot]]] | None = None,
    ) -> None:
        """Create every metric with the value 0, so that a rate includes the first event.

        Args:
            codes: Every error code.
            snapshots: Returns the metrics of all processes that answer; None if this one is alone.
        """
        self._registry, self._snapshots = CollectorRegistry(), snapshots
        self._largest = set[str]()  # names of gauges that are not summed over workers
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
        self._classes = self._counter(
            "class_images", "Images with a prediction, by the class answered.", ("class_id",)
        )
        self.confidence = Histogram(
            "scda_confidence",
            "Confidence of the predictions.",
            buckets=_SHARES,
            registry=self._registry,
        )
        self._errors = self._counter("errors", "Refused requests and images.", ("code",))
        for kind in ("known", "discovered", UNKNOWN):
            for outlier in ("false", "true"):
                self._images.labels(kind, outlier)
        for code in codes:
            self._errors.labels(code)
        for stage in ("decode", "model"):
            self.wait.labels(stage)
        self.requests_in_progress = self._gauge(
            "requests_in_progress", "Requests that hold a place in the queue.", ()
        )
        self.body_bytes = self._gauge("body_bytes", "Bytes of request bodies in memory.", ())
        self.images_in_progress = self._gauge(
            "images_in_progress", "Images that are read, wait, are decoded or in the model.", ()
        )
        memory = self._gauge("resident_memory_bytes", "Memory of the workers, as in RSS.", ())
        memory.set_function(resident_memory)
        self._expected_outliers = self._gauge(
            "expected_outlier_share",
            "Share of outliers on the model's own target.",
            ("model_id",),
            largest=True,
        )
        self._expected_confidence = self._gauge(
            "expected_confidence",
            "Mean confidence on the model's own target.",
            ("model_id",),
            largest=True,
        )
        self._expected_classes = self._gauge(
            "expected_class_share",
            "Share of a class on the model's own target.",
            ("class_id",),
            largest=True,
        )
        self.names_version = self._gauge(
            "names_version", "Version of the names in use.", (), largest=True
        )
        self.names_refused = self._gauge(
            "names_refused",
            "1 while names.json is damaged or another model's, and not in use.",
            (),
            largest=True,
        )
        self.bundle_replaced = self._gauge(
            "bundle_replaced",
            "1 while the bundle's folder no longer holds the served model.",
            (),
            largest=True,
        )
        self._model = self._gauge(
            "model_info",
            "1 for the served model and its provider, 0 for one served before.",
            ("model_id", "provider"),
            largest=True,
        )
        self._shown: tuple[str, str] | None = None

    def show_model(self, model_id: str, provider: str) -> None:
        """Show which model is served, and where it runs."""
        if self._shown:
            self._model.labels(*self._shown).set(0)
        self._shown = (model_id, provider)
        self._model.labels(*self._shown).set(1)

    def show_expected(self, manifest: Manifest, names: Names) -> None:
        """Show what the model answers for its own target; nothing for a bundle without it."""
        for gauge in (self._expected_outliers, self._expected_confidence, self._expected_classes):
            gauge.clear()
        if (figures := manifest.on_target) is None:
            return
        self._expected_outliers.labels(manifest.id).set(figures.outlier_share)
        self._expected_confidence.labels(manifest.id).set(figures.mean_confidence)
        sizes: dict[str, int] = {}
        for info in manifest.classes:
            class_id = names.resolve(info.class_id)
            sizes[class_id] = sizes.get(class_id, 0) + info.size
        for class_id, size in sizes.items():
            self._expected_classes.labels(class_id).set(size / figures.images)

    def count_request(self, scope: Scope, status: int, seconds: float) -> None:
        """Count an answered request; a path without a route counts as `other`."""
        self._requests.labels(route_of(scope), str(status)).observe(seconds)

    def count_image(self, answer: Prediction) -> None:
        """Count an image with a prediction."""
        self._images.labels(answer.kind, str(answer.outlier).lower()).inc()
        self._classes.labels(answer.class_id).inc()
        self.confidence.observe(answer.confidence)

    def count_error(self, code: str) -> None:
        """Count a refused request, or a refused image of a batch."""
        self._errors.labels(code).inc()

    def snapshot(self) -> Snapshot:
        """Return the metrics of this process."""
        return [
            Family(
                name=metric.name,
                help=metric.documentation,
                type=metric.type,
                largest=metric.name in self._largest,
                samples=[
                    (sample.name, sample.labels, sample.value)
                    for sample in metric.samples
                    if not sample.name.endswith("_created")  # the start of one of the processes
                ],
            )
            for metric in self._registry.collect()
        ]

    async def respond(self) -> Response:
        """Return the metrics of all workers, in the text format."""
        snapshots = await self._snapshots() if self._snapshots else [self.snapshot()]
        registry = CollectorRegistry()
        registry.register(_Values(add(snapshots)))
        return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)

    def _counter(self, name: str, text: str, labels: tuple[str, ...]) -> Counter:
        return Counter(f"scda_{name}", text, labels, registry=self._registry)

    def _gauge(
        self, name: str, text: str, labels: tuple[str, ...], *, largest: bool = False
    ) -> Gauge:
        """Create a gauge; it is summed over workers, or the largest counts."""
        name = f"scda_{name}"
        if largest:
            self._largest.add(name)
        return Gauge(name, text, labels, registry=self._registry)

    def _histogram(self, name: str, text: str, labels: tuple[str, ...] = ()) -> Histogram:
        name = f"scda_{name}_seconds"
        return Histogram(name, text, labels, buckets=_SECONDS, registry=self._registry)


def resident_memory() -> float:
    """Return the memory that this process holds, in bytes; 0 where the system does not tell."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        return 0.0
    return float(pages * os.sysconf("SC_PAGE_SIZE"))


class _Values(Collector):
    def __init__(self, values: Snapshot) -> None:
        self._values = values

    def collect(self) -> Iterable[Metric]:
        for family in self._values:
            metric = Metric(family["name"], family["help"], family["type"])
            for name, labels, value in family["samples"]:
                metric.add_sample(name, labels, value)
            yield metric


def route_of(scope: Scope) -> str:
    """Return the route that a request has matched, or `other`."""
    return getattr(scope.get("route"), "path", "other")
