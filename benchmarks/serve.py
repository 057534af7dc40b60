"""How close does the endpoint come to what the cores can do, and to another server's?

    python benchmarks/serve.py --bundle BUNDLE --images DIR

The bound is (cores - what the clients take) / (processor seconds of decoding, preparing and ONNX
Runtime per image, each alone on one thread). Beside ours, in the same run and in turn: LitServe
with the same file reading, preprocessing, model and answer, in two arrangements, of which the
faster counts. While one is loaded the others are stopped: LitServe's workers look for requests all
the time. 16 clients keep their connections and send JPEGs as form files.

Then 16 clients ask at half of the rate reached, each at its own even pace: the 99% quantile of the
latency against the time of an image that comes alone. Beside it, for those whose clients come in
crowds: the same rate with moments that know nothing of each other.

Ends with a line for each answer; exit code 0 only if all pass.
"""

import argparse
import statistics
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path

import server
from answers import Answer, exit_code
from label import processor_seconds
from load import Load, arrive, at_even_paces, at_random, keep_busy
from scda.models.bundle import bundle_folder
from scda.models.cpus import usable_cpus
from scda.models.files import walk
from scda.models.predictor import load_predictor
from server import Server

_SAMPLE = 320  # images sent in turn, and the bound's
_CLIENTS = 16
_ROUNDS = 3  # of each server in turn: the machine's other work falls on all
_SECONDS = 10.0  # of load per round
_LATENCY_SECONDS = 30.0


@dataclass(frozen=True)
class Contestant:
    """A server, and where it takes images; while one is loaded, the others stand still."""

    server: Server
    path: str
    field: str

    def busy(self, files: Sequence[bytes], *, clients: int = _CLIENTS) -> Load:
        """Load it with clients that never pause."""
        with self.server.alone():
            return keep_busy(self.url, self.field, files, clients=clients, seconds=_SECONDS)

    def now_and_then(self, files: Sequence[bytes], moments: Sequence[float]) -> Load:
        """Load it with an image at each of these moments."""
        with self.server.alone():
            return arrive(self.url, self.field, files, moments)

    @property
    def url(self) -> str:
        """The whole address of its route."""
        return self.server.url + self.path


def main() -> int:
    """Measure the bound, ours and LitServe; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bundle", type=Path, required=True)
    parser.add_argument("--images", type=Path, required=True)
    given = parser.parse_args()
    paths = list(walk(given.images))
    paths = paths[:: max(1, len(paths) // _SAMPLE)]
    files = [path.read_bytes() for path in paths]
    one_thread = load_predictor(bundle_folder(given.bundle), provider="cpu", threads=1)
    cost = processor_seconds(one_thread, paths)
    with ExitStack() as stack:
        contestants = start(stack, given.bundle)
        spells = rounds(contestants, files)
        ours = contestants["ours"]
        alone = ours.busy(files, clients=1)
        half, spell = median_rate(spells["ours"]) / 2, _LATENCY_SECONDS
        even = ours.now_and_then(files, at_even_paces(_CLIENTS, rate=half, seconds=spell))
        chance = ours.now_and_then(files, at_random(rate=half, seconds=spell))
    return report(spells, cost, alone, {"even paces": even, "at random": chance})


def start(stack: ExitStack, bundle: Path) -> dict[str, Contestant]:
    """Start every server; each may take all cores."""
    cores = usable_cpus()

    def started(running: AbstractContextManager[Server], path: str, field: str) -> Contestant:
        contestant = Contestant(stack.enter_context(running), path, field)
        contestant.server.rest()
        return contestant

    few, many = (
        server.litserve(bundle, workers=workers, threads=cores // workers) for workers in (1, cores)
    )
    return {
        "ours": started(server.ours(bundle), "/v1/predict", "image"),
        "litserve, one worker": started(few, "/predict", "request"),
        "litserve, a worker per core": started(many, "/predict", "request"),
    }


def rounds(contestants: dict[str, Contestant], files: Sequence[bytes]) -> dict[str, list[Load]]:
    """Load the servers in turn, after one round that does not count."""
    for contestant in contestants.values():
        contestant.busy(files)
    spells: dict[str, list[Load]] = {name: [] for name in contestants}
    for _ in range(_ROUNDS):
        for name, contestant in contestants.items():
            spells[name].append(contestant.busy(files))
    return spells


def median_rate(spells: Sequence[Load]) -> float:
    """Return the middle one of the rates, in images/s."""
    return statistics.median(spell.rate for spell in spells)


def report(spells: dict[str, list[Load]], cost: float, alone: Load, halves: dict[str, Load]) -> int:
    """Print what was measured, then the answers."""
    rates = {name: median_rate(loads) for name, loads in spells.items()}
    bound = statistics.median(
        (usable_cpus() - spell.client_seconds / spell.seconds) / cost for spell in spells["ours"]
    )
    said = ", ".join(f"{name} {rate:.1f}" for name, rate in {"bound": bound, **rates}.items())
    print(f"{_CLIENTS} clients, images/s: {said}")
    single = alone.quantile(0.5)
    print(f"an image alone: {single * 1e3:.1f} ms; at half of the rate reached, median and 99%:")
    for name, half in halves.items():
        print(f"{name}: {half.quantile(0.5) * 1e3:.1f} and {half.quantile(0.99) * 1e3:.1f} ms")
    ours = rates.pop("ours")
    return exit_code(
        [
            Answer("serve_bound", ours / bound, 0.75, at_least=True),
            Answer("serve_p99", halves["even paces"].quantile(0.99) / single, 5),
            Answer("serve_vs_litserve", ours / max(rates.values()), 1, at_least=True),
        ]
    )


if __name__ == "__main__":
    sys.exit(main())
