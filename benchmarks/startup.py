"""Measure how long the endpoint takes until it is ready, and labelling until its first row.

    python -m benchmarks.startup --bundle BUNDLE --images DIR [--starts 9]

Both commands are started in turn. `startup_serve` is the time from the start of `scda-adapt serve`
to the first 200 of /readyz, asked every 10 milliseconds; `startup_label` the time from the start of
`scda-adapt label --out -` to its first row. The first start of each is not counted: it reads the
programs from the disk. Medians are compared with their bounds; the exit code is 0 only if both
pass.
"""

import argparse
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.speed import server
from benchmarks.speed.answers import Answer, exit_code

_STARTS = 9
_SERVE_SECONDS, _LABEL_SECONDS = 2.0, 1.5


def main(argv: Sequence[str] | None = None) -> int:
    """Measure both commands in turn; return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--bundle", type=Path, required=True)
    parser.add_argument("--images", type=Path, required=True)
    parser.add_argument("--starts", type=int, default=_STARTS)
    given = parser.parse_args(argv)
    serve, label = list[float](), list[float]()
    for _ in range(1 + given.starts):
        serve.append(until_ready(given.bundle))
        label.append(until_first_row(given.bundle, given.images))
    for name, seconds in (("serve", serve[1:]), ("label", label[1:])):
        low, middle, high = min(seconds), statistics.median(seconds), max(seconds)
        print(f"{name}: {middle:.2f} s, {low:.2f} to {high:.2f}")
    return exit_code(
        [
            Answer("startup_serve", statistics.median(serve[1:]), _SERVE_SECONDS, at_least=False),
            Answer("startup_label", statistics.median(label[1:]), _LABEL_SECONDS, at_least=False),
        ]
    )


def until_ready(bundle: Path) -> float:
    """Return the seconds until the endpoint is ready."""
    began = time.perf_counter()
    with server.ours(bundle):
        return time.perf_counter() - began


def until_first_row(bundle: Path, images: Path) -> float:
    """Return the seconds until the first row of a labelling; it ends when nobody reads on."""
    words = ["label", str(bundle), str(images), "--out", "-", "--quiet"]
    began = time.perf_counter()
    argv = [sys.executable, "-m", "scda.adapt", *words]
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as process:
        assert process.stdout
        head, row = process.stdout.readline(), process.stdout.readline()
        seconds = time.perf_counter() - began
    if not (head and row):
        raise SystemExit(f"{images}: no row was written")
    return seconds


if __name__ == "__main__":
    sys.exit(main())
