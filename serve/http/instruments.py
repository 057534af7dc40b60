"""Instruments of Prometheus in a registry of their own, and their values in the text format."""

from collections.abc import Iterable, Sequence

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    generate_latest,
)
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from scda.serve.http.snapshots import Family, Snapshot

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)


class Instruments:
    """Creates the instruments of one application, whose names begin with `scda_`.

    Counters and histograms are summed over the workers of a server, and so are gauges; of a gauge
    that is created by `largest`, the largest value counts.
    """

    def __init__(self) -> None:
        """Begin without instruments."""
        self._registry, self._largest = CollectorRegistry(), set[str]()

    def counter(self, name: str, text: str, label: str, *labels: str) -> Counter:
        """Create a counter."""
        return Counter(f"scda_{name}", text, (label, *labels), registry=self._registry)

    def gauge(self, name: str, text: str) -> Gauge:
        """Create a gauge without labels."""
        return Gauge(f"scda_{name}", text, registry=self._registry)

    def largest(self, name: str, text: str, *labels: str) -> Gauge:
        """Create a gauge whose largest value counts."""
        self._largest.add(f"scda_{name}")
        return Gauge(f"scda_{name}", text, labels, registry=self._registry)

    def seconds(self, name: str, text: str, *labels: str) -> Histogram:
        """Create a histogram of seconds, whose name ends so."""
        return self.histogram(f"{name}_seconds", text, _SECONDS, *labels)

    def histogram(self, name: str, text: str, buckets: Sequence[float], *labels: str) -> Histogram:
        """Create a histogram."""
        return Histogram(f"scda_{name}", text, labels, buckets=buckets, registry=self._registry)

    def snapshot(self) -> Snapshot:
        """Return the values of all instruments."""
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


def as_text(values: Snapshot) -> bytes:
    """Return values in the text format of Prometheus."""
    registry = CollectorRegistry()
    registry.register(_Values(values))
    return generate_latest(registry)


class _Values(Collector):
    def __init__(self, values: Snapshot) -> None:
        self._values = values

    def collect(self) -> Iterable[Metric]:
        for family in self._values:
            metric = Metric(family["name"], family["help"], family["type"])
            for name, labels, value in family["samples"]:
                metric.add_sample(name, labels, value)
            yield metric
