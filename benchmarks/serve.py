"""How close does the endpoint come to what the cores can do, and to another server's?

    python benchmarks/serve.py --bundle BUNDLE --images DIR

The bound is (cores - what the clients take) / (processor seconds of decoding, preparing and ONNX
Runtime per image, each alone on one thread). Beside ours, in the same run and in turn: LitServe
with the same file reading, preprocessing, model and answer, in two arrangements, of which the
faster counts. 16 clients keep their connections and send JPEGs as form files.

Then images arrive one by one, at random, at half of the rate reached: the 99% quantile of the
latency against the time of an image that comes alone.

Ends with a line for each answer; exit code 0 only if all pass.
"""

import argparse
import statistics
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import server
from answers import Answer, exit_code
from label import processor_seconds
from load import Load, arrive, keep_busy
from scda.models.bundle import bundle_folder
from scda.models.cpus import usable_cpus
from scda.models.files import walk
from scda.models.predictor import load_predictor

_SAMPLE = 320  # images sent in turn, and the bound's
_CLIENTS = 16
_ROUNDS = 3  # of each server in turn: the machine's other work falls on all
_SECONDS = 10.0  # of load per round
_LATENCY_SECONDS = 30.0


@dataclass(frozen=True)
class Route:
    """Where a server takes images."""

    url: str
    field: str

    def busy(self, files: Sequence[bytes], *, clients: int = _CLIENTS) -> Load:
        """Load it with clients that never pause."""
        return keep_busy(self.url, self.field, files, clients=clients, seconds=_SECONDS)


def main() -> int:
    """Measure the bound, ours and LitServe; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bundle", type=Path, required=True)
    parser.add_argument("--images", type=Path, required=True)
    given = parser.parse_args()
    paths = list(walk(given.images))
    paths = paths[:: max(1, len(paths) // _SAMPLE)]
    files = [path.read_bytes() for path in paths]
    cost = processor_seconds(load_predictor(bundle_folder(given.bundle), provider="cpu"), paths)
    with ExitStack() as stack:
        routes = start(stack, given.bundle)
        spells = rounds(routes, files)
        alone = routes["ours"].busy(files, clients=1)
        ours = routes["ours"]
        rate = median_rate(spells["ours"])
        half = arrive(ours.url, ours.field, files, rate=rate / 2, seconds=_LATENCY_SECONDS)
    return report(spells, cost, alone, half)


def start(stack: ExitStack, bundle: Path) -> dict[str, Route]:
    """Start every server; each has all cores, and the others rest meanwhile."""
    cores = usable_cpus()
    ours = stack.enter_context(server.ours(bundle))
    few = stack.enter_context(server.litserve(bundle, workers=1, threads=cores))
    many = stack.enter_context(server.litserve(bundle, workers=cores, threads=1))
    return {
        "ours": Route(f"{ours.url}/v1/predict", "image"),
        "litserve, one worker": Route(f"{few.url}/predict", "request"),
        "litserve, a worker per core": Route(f"{many.url}/predict", "request"),
    }


def rounds(routes: dict[str, Route], files: Sequence[bytes]) -> dict[str, list[Load]]:
    """Load the servers in turn, after one round that does not count."""
    for route in routes.values():
        route.busy(files)
    spells: dict[str, list[Load]] = {name: [] for name in routes}
    for _ in range(_ROUNDS):
        for name, route in routes.items():
            spells[name].append(route.busy(files))
    return spells


def median_rate(spells: Sequence[Load]) -> float:
    """Return the middle one of the rates, in images/s."""
    return statistics.median(spell.rate for spell in spells)


def report(spells: dict[str, list[Load]], cost: float, alone: Load, half: Load) -> int:
    """Print what was measured, then the answers."""
    rates = {name: median_rate(loads) for name, loads in spells.items()}
    bound = statistics.median(
        (usable_cpus() - spell.client_seconds / spell.seconds) / cost for spell in spells["ours"]
    )
    said = ", ".join(f"{name} {rate:.1f}" for name, rate in {"bound": bound, **rates}.items())
    print(f"{_CLIENTS} clients, images/s: {said}")
    single, p50, p99 = alone.quantile(0.5), half.quantile(0.5), half.quantile(0.99)
    print(
        f"alone {single * 1e3:.1f} ms; at {half.rate:.1f} images/s: "
        f"median {p50 * 1e3:.1f} ms, 99% {p99 * 1e3:.1f} ms"
    )
    ours = rates.pop("ours")
    return exit_code(
        [
            Answer("serve_bound", ours / bound, 0.75, at_least=True),
            Answer("serve_p99", p99 / single, 5),
            Answer("serve_vs_litserve", ours / max(rates.values()), 1, at_least=True),
        ]
    )


if __name__ == "__main__":
    sys.exit(main())
