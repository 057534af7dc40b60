"""Compare the endpoint with the bound of the CPU cores, with int8 and with LitServe.

    python -m benchmarks.serve --bundle BUNDLE --images DIR [--int8 BUNDLE2] [--photos DIR2]

The bound is (cores - cores used by the clients) / (processor seconds of decoding, preparing and
ONNX Runtime per image, each measured alone on one thread), with the bundle in float32. `serve_int8`
compares the endpoint with BUNDLE2, which is BUNDLE in int8, with the same bound, and
`serve_int8_openvino` the same with OpenVINO.

In the same run, the servers take turns with LitServe, which has the same file reading,
preprocessing, model and answer, in two configurations, of which the faster counts. Servers without
load are suspended, because LitServe's workers poll for requests all the time. 16 clients keep their
connections open and send JPEGs as form files.

Then 16 clients send at half of the maximal rate, each at its own even pace, to compare the 99%
quantile of the latency with the latency of a single image: `serve_p99`. The same rate at
independent random moments, where several images may arrive at once, is `serve_p99_at_random`.

Everything is measured in every round, and the median of the ratios over the rounds counts. A table
has the medians of the rates without pauses and of the processor time of the servers, OpenVINO's
where it is installed, also for the photographs of 12 megapixels in DIR2, if it is given; where it
is missing, it is filled with 200 of the images, enlarged.

The last lines compare each figure of DIR with its bound; the exit code is 0 only if all that apply
pass.
"""

import argparse
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path

from benchmarks.label import BOUND, FLOAT32, IMAGES, INT8, INT8_OV, OV, processor_seconds
from benchmarks.speed import server
from benchmarks.speed.answers import Answer, NotApplicable, exit_code
from benchmarks.speed.contestant import Contestant
from benchmarks.speed.load import Load, at_even_paces, at_random
from benchmarks.speed.photographs import PHOTOGRAPHS, photographs_in
from benchmarks.speed.precisions import int8_version, why_no_openvino
from benchmarks.speed.rates import Rate, Rates, middle, shown, table
from benchmarks.speed.server import Server
from scda.models.bundle import bundle_folder
from scda.models.cpus import usable_cpus
from scda.models.errors import UsageError
from scda.models.folders import walk
from scda.models.predictor import Predictor, load_predictor
from scda.models.session import OPENVINO

_SAMPLE = 320  # number of images, for the load and for the bound
_CLIENTS = 16
_ROUNDS = 3  # in each, the servers take turns, so that other work on the machine slows all of them
_SECONDS = 10.0  # duration of a load
_LATENCY_SECONDS = 15.0


def main(argv: Sequence[str] | None = None) -> int:
    """Measure the bound, scda and LitServe in rounds; return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--bundle", type=Path, required=True)
    parser.add_argument("--images", type=Path, required=True)
    parser.add_argument("--int8", type=Path, help="the bundle in int8")
    parser.add_argument("--photos", type=Path, help="photographs of 12 megapixels; may be missing")
    given = parser.parse_args(argv)
    try:
        one_thread = load_predictor(bundle_folder(given.bundle), provider="cpu", threads=1)
        int8 = int8_version(given.int8, one_thread.manifest) if given.int8 else None
    except UsageError as error:
        parser.error(str(error))
    paths = list(walk(given.images))
    photos = photographs_in(given.photos, paths) if given.photos else []
    sample = paths[:: max(1, len(paths) // _SAMPLE)]
    rounds, of_photos = list[Round](), list[Full]()
    with ExitStack() as stack:
        contestants = start(stack, one_thread.folder, int8)
        in_turn(contestants, one_thread, sample)  # warm-up
        for _ in range(_ROUNDS):
            rounds.append(measured(contestants, one_thread, sample))
            print(rounds[-1], flush=True)
        of_photos = [
            in_turn(contestants, one_thread, photos) for _ in range(_ROUNDS if photos else 0)
        ]
    columns = {IMAGES: [one.full for one in rounds], PHOTOGRAPHS: of_photos}
    rates = {what: middle([one.rates() for one in full]) for what, full in columns.items() if full}
    print("", table(rates), sep="\n")
    return exit_code(answers(rounds))


def answers(rounds: Sequence["Round"]) -> list[Answer | NotApplicable]:
    """Return the median figures of the rounds, compared with their bounds."""

    def ratio(name: str, figure: Callable[[Round], float], bar: float) -> Answer:
        found = statistics.median(map(figure, rounds))
        return Answer(name, found, bar, at_least=not name.startswith("serve_p99"))

    def in_int8(name: str, server: str, why_not: str) -> Answer | NotApplicable:
        if server not in rounds[0].full.loads:
            return NotApplicable(name, why_not)
        return ratio(name, lambda one: one.full.of_bound(server), 1.1)

    return [
        ratio("serve_bound", lambda one: one.full.of_bound(FLOAT32), 0.88),
        ratio("serve_p99", lambda one: one.over_alone(one.even), 5),
        ratio("serve_p99_at_random", lambda one: one.over_alone(one.chance), 5),
        ratio("serve_vs_litserve", lambda one: one.full.over_litserve(), 1.15),
        in_int8("serve_int8", INT8, "no bundle of --int8"),
        in_int8("serve_int8_openvino", INT8_OV, "no bundle of --int8, or no OpenVINO"),
    ]


def start(stack: ExitStack, bundle: Path, int8: Path | None) -> dict[str, Contestant]:
    """Start all servers; each may use all cores."""
    cores = usable_cpus()

    def started(running: AbstractContextManager[Server], path: str, field: str) -> Contestant:
        contestant = Contestant(stack.enter_context(running), path, field)
        contestant.server.rest()
        return contestant

    ours = {FLOAT32: server.ours(bundle)}
    if int8:
        ours[INT8] = server.ours(int8)
    if not why_no_openvino():
        ours[OV] = server.ours(bundle, SCDA_PROVIDER=OPENVINO)
        if int8:
            ours[INT8_OV] = server.ours(int8, SCDA_PROVIDER=OPENVINO)
    few, many = (
        server.litserve(bundle, workers=workers, threads=cores // workers) for workers in (1, cores)
    )
    return {
        **{name: started(one, "/v1/predict", "image") for name, one in ours.items()},
        "LitServe, one worker": started(few, "/predict", "request"),
        "LitServe, a worker per core": started(many, "/predict", "request"),
    }


@dataclass(frozen=True)
class Full:
    """All servers in turn under clients that never pause."""

    cost: float  # processor time of one image, seconds
    loads: Mapping[str, Load]  # by server

    def bound(self, name: str) -> float:
        """Images per second in float32 that the cores allow in addition to a server's clients."""
        load = self.loads[name]
        return (usable_cpus() - load.client_seconds / load.seconds) / self.cost

    def of_bound(self, name: str) -> float:
        """Return the rate of a server as a share of the bound in float32."""
        return self.loads[name].rate / self.bound(name)

    def over_litserve(self) -> float:
        """Return the ratio of scda's rate to that of the faster LitServe."""
        others = [load.rate for name, load in self.loads.items() if name.startswith("LitServe")]
        return self.loads[FLOAT32].rate / max(others)

    def rates(self) -> Rates:
        """Return the rates of the bound and of the servers, without the time of the clients."""
        return {BOUND: Rate(self.bound(FLOAT32), self.cost)} | {
            name: Rate(load.rate, load.server_seconds / len(load.latencies))
            for name, load in self.loads.items()
        }


def in_turn(
    contestants: Mapping[str, Contestant], one_thread: Predictor, paths: Sequence[Path]
) -> Full:
    """Measure the processor time of an image, and the servers in turn."""
    cost, files = processor_seconds(one_thread, paths), [path.read_bytes() for path in paths]
    loads = {
        name: contestant.busy(files, clients=_CLIENTS, seconds=_SECONDS)
        for name, contestant in contestants.items()
    }
    return Full(cost, loads)


@dataclass(frozen=True, kw_only=True)
class Round:
    """The measurements of one round, close enough in time to be comparable."""

    full: Full
    alone: Load
    even: Load
    chance: Load

    def over_alone(self, load: Load) -> float:
        """Return the ratio of the 99% latency of a load to the latency of a single image."""
        return load.quantile(0.99) / self.alone.quantile(0.5)

    def __str__(self) -> str:
        """Return the rates and the latencies as two lines."""
        spells = {"alone": self.alone, "even paces": self.even, "at random": self.chance}
        times = (
            f"{name} {1e3 * load.quantile(0.5):.1f} and {1e3 * load.quantile(0.99):.1f}"
            for name, load in spells.items()
        )
        return f"{shown(self.full.rates())}\n  median and 99%, ms: {', '.join(times)}"


def measured(
    contestants: Mapping[str, Contestant], one_thread: Predictor, paths: Sequence[Path]
) -> Round:
    """Measure the servers in turn, then scda with single images and at half of its rate."""
    full = in_turn(contestants, one_thread, paths)
    ours, half = contestants[FLOAT32], full.loads[FLOAT32].rate / 2
    files = [path.read_bytes() for path in paths]
    even = at_even_paces(_CLIENTS, rate=half, seconds=_LATENCY_SECONDS)
    chance = at_random(rate=half, seconds=_LATENCY_SECONDS)
    return Round(
        full=full,
        alone=ours.busy(files, clients=1, seconds=_SECONDS),
        even=ours.now_and_then(files, even),
        chance=ours.now_and_then(files, chance),
    )


if __name__ == "__main__":
    sys.exit(main())
