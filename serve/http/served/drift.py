"""Windows of answers, each compared with what the training stored."""

from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor

from scda.models.bundle import Manifest
from scda.models.drift.compare import ALPHA, Drift, Reference, Sample, compare, reference_of
from scda.models.names import Names
from scda.models.predictor import Prediction
from scda.serve.http.instruments import Instruments

WINDOW = 1000  # images
_TESTS = ("classes", "distance", "outliers")  # the training stores no confidence of new images


class DriftMetrics:
    """Windows of this process that were compared, and those in which a test raised an alarm."""

    def __init__(
        self, make: Instruments, *, executor: Callable[[], Executor] | None = None
    ) -> None:
        """Create the metrics.

        Args:
            make: Creates the instruments.
            executor: Returns what compares a window, for tests; by default a thread, so that
                requests do not wait meanwhile.
        """
        text = f"Windows of {WINDOW} images compared with the model's own target."
        self._windows = make.counter("drift_windows", text, "training_due")
        for due in ("false", "true"):
            self._windows.labels(due)
        text = f"Windows in which a test raised an alarm; {ALPHA:.0%} of windows without a change."
        self._alarms = make.counter("drift_alarms", text, "test")
        for test in _TESTS:
            self._alarms.labels(test)
        self._make_executor = executor or (lambda: ThreadPoolExecutor(1, "drift"))
        self._executor: Executor | None = None
        self._reference: Reference | None = None
        self._sample = Sample()

    def begin(self, manifest: Manifest, names: Names) -> None:
        """Begin a window of the answers of a model under its names."""
        self._reference = reference_of(manifest, names) if manifest.on_target else None
        self._sample = Sample()

    def add(self, answer: Prediction) -> None:
        """Add an answer; the last one of a window has it compared, in a thread of its own."""
        if self._reference is None:
            return
        self._sample.add(
            answer.class_id,
            outlier=answer.outlier,
            confidence=answer.confidence,
            distance=answer.nearest[0]["distance"],
        )
        if self._sample.images == WINDOW:
            self._executor = self._executor or self._make_executor()
            self._executor.submit(self._compare, self._reference, self._sample)
            self._sample = Sample()

    def _compare(self, reference: Reference, sample: Sample) -> None:
        self._count(compare(reference, sample))

    def _count(self, drift: Drift) -> None:
        self._windows.labels(str(drift.training_due).lower()).inc()
        for test in drift.changed:
            self._alarms.labels(test).inc()
