"""Compare the endpoint with the bound of the CPU cores, with int8 and with LitServe.

    python -m benchmarks.serve --bundle BUNDLE --images DIR [--int8 BUNDLE2]

The bound is (cores - cores used by the clients) / (processor seconds of decoding, preparing and
ONNX Runtime per image, each measured alone on one thread), with the bundle in float32. `serve_int8`
compares the endpoint with BUNDLE2, which is BUNDLE in int8, with the same bound.

In the same run, the servers take turns with LitServe, which has the same file reading,
preprocessing, model and answer, in two configurations, of which the faster counts. Servers without
load are suspended, because LitServe's workers poll for requests all the time. 16 clients keep their
connections open and send JPEGs as form files.

Then 16 clients send at half of the maximal rate, each at its own even pace, to compare the 99%
quantile of the latency with the latency of a single image: `serve_p99`. The same rate at
independent random moments, where several images may arrive at once, is `serve_p99_at_random`.

Everything is measured in every round, and the median of the ratios over the rounds counts.

The last lines compare each figure with its bound; the exit code is 0 only if all that apply pass.
"""

import argparse
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from benchmarks.label import FLOAT32, INT8, processor_seconds
from benchmarks.speed import server
from benchmarks.speed.answers import Answer, NotApplicable, exit_code
from benchmarks.speed.load import Load, arrive, at_even_paces, at_random, keep_busy
from benchmarks.speed.precisions import int8_version
from benchmarks.speed.server import Server
from scda.models.bundle import bundle_folder
from scda.models.cpus import usable_cpus
from scda.models.errors import UsageError
from scda.models.folders import walk
from scda.models.predictor import load_predictor

_SAMPLE = 320  # number of images, for the load and for the bound
_CLIENTS = 16
_ROUNDS = 3  # in each, the servers take turns, so that other work on the machine slows all of them
_SECONDS = 10.0  # duration of a load
_LATENCY_SECONDS = 15.0


@dataclass(frozen=True)
class Contestant:
    """A server and its route for images; it is suspended while another one is under load."""

    server: Server
    path: str
    field: str

    def busy(self, files: Sequence[bytes], *, clients: int = _CLIENTS) -> Load:
        """Measure it under clients that never pause."""
        with self.server.alone():
            return keep_busy(self.url, self.field, files, clients=clients, seconds=_SECONDS)

    def now_and_then(self, files: Sequence[bytes], moments: Sequence[float]) -> Load:
        """Measure it with one image at each of these moments."""
        with self.server.alone():
            return arrive(self.url, self.field, files, moments)

    @property
    def url(self) -> str:
        """Address of its route for images."""
        return self.server.url + self.path


def main(argv: Sequence[str] | None = None) -> int:
    """Measure the bound, scda and LitServe in rounds; return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--bundle", type=Path, required=True)
    parser.add_argument("--images", type=Path, required=True)
    parser.add_argument("--int8", type=Path, help="the bundle in int8")
    given = parser.parse_args(argv)
    try:
        one_thread = load_predictor(bundle_folder(given.bundle), provider="cpu", threads=1)
        int8 = int8_version(given.int8, one_thread.manifest) if given.int8 else None
    except UsageError as error:
        parser.error(str(error))
    paths = list(walk(given.images))
    paths = paths[:: max(1, len(paths) // _SAMPLE)]
    files = [path.read_bytes() for path in paths]
    with ExitStack() as stack:
        contestants = start(stack, one_thread.folder, int8)
        for contestant in contestants.values():
            contestant.busy(files)  # warm-up
        rounds = []
        for _ in range(_ROUNDS):
            rounds.append(measured(contestants, files, processor_seconds(one_thread, paths)))
            print(rounds[-1], flush=True)
    return exit_code(answers(rounds))


def answers(rounds: Sequence["Round"]) -> list[Answer | NotApplicable]:
    """Return the median figures of the rounds, compared with their bounds."""
    of_int8 = partial(Round.of_bound, name=INT8)
    return [
        Answer("serve_bound", middle(rounds, Round.of_bound), 0.88, at_least=True),
        Answer("serve_p99", middle(rounds, Round.p99_over_alone), 5),
        Answer("serve_p99_at_random", middle(rounds, Round.p99_at_random_over_alone), 5),
        Answer("serve_vs_litserve", middle(rounds, Round.over_litserve), 1.15, at_least=True),
        Answer("serve_int8", middle(rounds, of_int8), 1.1, at_least=True)
        if INT8 in rounds[0].full
        else NotApplicable("serve_int8", "no bundle of --int8"),
    ]


def start(stack: ExitStack, bundle: Path, int8: Path | None) -> dict[str, Contestant]:
    """Start all servers; each may use all cores."""
    cores = usable_cpus()

    def started(running: AbstractContextManager[Server], path: str, field: str) -> Contestant:
        contestant = Contestant(stack.enter_context(running), path, field)
        contestant.server.rest()
        return contestant

    versions = {FLOAT32: bundle} | ({INT8: int8} if int8 else {})
    few, many = (
        server.litserve(bundle, workers=workers, threads=cores // workers) for workers in (1, cores)
    )
    return {
        **{
            name: started(server.ours(folder), "/v1/predict", "image")
            for name, folder in versions.items()
        },
        "LitServe, one worker": started(few, "/predict", "request"),
        "LitServe, a worker per core": started(many, "/predict", "request"),
    }


def measured(contestants: Mapping[str, Contestant], files: Sequence[bytes], cost: float) -> "Round":
    """Measure the servers in turn, then scda with single images and at half of its rate."""
    full = {name: contestant.busy(files) for name, contestant in contestants.items()}
    ours, half = contestants[FLOAT32], full[FLOAT32].rate / 2
    even = at_even_paces(_CLIENTS, rate=half, seconds=_LATENCY_SECONDS)
    chance = at_random(rate=half, seconds=_LATENCY_SECONDS)
    return Round(
        cost=cost,
        full=full,
        alone=ours.busy(files, clients=1),
        even=ours.now_and_then(files, even),
        chance=ours.now_and_then(files, chance),
    )


@dataclass(frozen=True, kw_only=True)
class Round:
    """The measurements of one round, close enough in time to be comparable."""

    cost: float  # processor time of one image, seconds
    full: dict[str, Load]  # server → load without pauses
    alone: Load
    even: Load
    chance: Load

    def bound(self, name: str = FLOAT32) -> float:
        """Images per second in float32 that the cores allow in addition to a server's clients."""
        load = self.full[name]
        return (usable_cpus() - load.client_seconds / load.seconds) / self.cost

    def of_bound(self, name: str = FLOAT32) -> float:
        """Return the rate of a server as a share of the bound in float32."""
        return self.full[name].rate / self.bound(name)

    def over_litserve(self) -> float:
        """Return the ratio of scda's rate to that of the faster LitServe."""
        others = [load.rate for name, load in self.full.items() if name.startswith("LitServe")]
        return self.full[FLOAT32].rate / max(others)

    def p99_over_alone(self) -> float:
        """Return the ratio of the 99% latency at half load to the latency of a single image."""
        return self.even.quantile(0.99) / self.alone.quantile(0.5)

    def p99_at_random_over_alone(self) -> float:
        """Return the same ratio for images that arrive at random moments."""
        return self.chance.quantile(0.99) / self.alone.quantile(0.5)

    def __str__(self) -> str:
        """Return the rates and the latencies as two lines."""
        rates = {"bound": self.bound(), **{name: load.rate for name, load in self.full.items()}}
        shown = ", ".join(f"{name} {rate:.1f}" for name, rate in rates.items())
        spells = {"alone": self.alone, "even paces": self.even, "at random": self.chance}
        times = (
            f"{name} {1e3 * load.quantile(0.5):.1f} and {1e3 * load.quantile(0.99):.1f}"
            for name, load in spells.items()
        )
        return f"images/s: {shown}\n  median and 99%, ms: {', '.join(times)}"


def middle(rounds: Sequence[Round], figure: Callable[[Round], float]) -> float:
    """Return the median of a figure over the rounds."""
    return statistics.median(map(figure, rounds))


if __name__ == "__main__":
    sys.exit(main())
