"""The metrics of the supervisor, and of workers that have ended."""

from collections import Counter
from collections.abc import Sequence

from scda.serve.http.snapshots import Family, Snapshot, add, lasting


class Counts:
    """What a sum over the workers that answer would lose."""

    def __init__(self) -> None:
        """Begin with zero."""
        # From zero, so that a rate has the first.
        self._restarts = Counter[str]({"SIGKILL": 0, "exit": 0, "slow_start": 0})
        self._ended = Snapshot()
        self.reloads = Counter[str]({"switched": 0, "kept": 0})

    def end(self, cause: str, last: Snapshot) -> None:
        """Count a worker that ended; its counters must not fall in the sum."""
        self._restarts[cause] += 1
        self._ended = add([self._ended, lasting(last)])

    def snapshots(self, *, answering: int) -> Sequence[Snapshot]:
        """Return what belongs to the sum, with the number of workers that answer."""
        restarts = _counter("worker_restarts", "Workers started anew.", "cause", self._restarts)
        reloads = _counter("reloads", "Requests to load the bundle anew.", "result", self.reloads)
        workers = Family(
            name="scda_workers",
            help="Workers that answer requests.",
            type="gauge",
            largest=False,
            samples=[("scda_workers", {}, float(answering))],
        )
        return [self._ended, [restarts, reloads, workers]]


def _counter(name: str, text: str, label: str, values: Counter[str]) -> Family:
    return Family(
        name=f"scda_{name}",
        help=text,
        type="counter",
        largest=False,
        samples=[
            (f"scda_{name}_total", {label: value}, float(times)) for value, times in values.items()
        ],
    )
