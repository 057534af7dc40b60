"""Label the same images on 1, 2 and 3 Ray nodes of this machine, each with one CPU.

    python -m benchmarks.ray_nodes --bundle BUNDLE --images DIR [--files N] [--nodes 1 2 3]

Images per second count the parts done while every node has a worker, and depend on what else the
machine does. Processor time per image, of the workers with their decoding processes, does not. The
last column says whether the rows are those of the local engine.
"""

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pyarrow.parquet as pq

from scda.models.bundle import bundle_folder
from scda.models.decoding import worker
from scda.models.folders import walk
from scda.models.predictor import Predictor, load_predictor
from scda.serve.labelling.label import label
from scda.serve.labelling.ray.cluster import ray_cluster
from scda.serve.labelling.ray.engine import label_on_ray

_BATCH_SIZE = 2  # 64 files to a part: some thousand files are many parts for each node
_LEAST_PARTS = 4  # of each node; with fewer, the time between the first and the last says nothing
_STORE_BYTES = 80_000_000  # of shared memory, for each node
_MIB = 2**20


def main() -> int:
    """Measure each number of nodes; the exit code is 0 only if all rows are equal."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--bundle", type=Path, required=True)
    parser.add_argument("--images", type=Path, required=True)
    parser.add_argument("--files", type=int, default=2800, help="files, evenly chosen")
    parser.add_argument("--nodes", type=int, nargs="+", default=[1, 2, 3])
    given = parser.parse_args()
    predictor = load_predictor(bundle_folder(given.bundle), provider="cpu", threads=1)
    paths = list(walk(given.images.absolute()))
    paths = paths[:: max(1, len(paths) // given.files)][: given.files]
    equal = True
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "files").write_bytes(b"\n".join(map(os.fsencode, paths)))
        wanted = _local_rows(predictor, folder)
        print("| nodes | images/s | processor ms per image | MiB of a worker | load | equal |")
        print("|---|---|---|---|---|---|")
        for nodes in given.nodes:
            used = _Used(nodes)
            rows = _ray_rows(predictor, folder, nodes, used)
            equal &= rows == wanted
            print(f"| {nodes} | {used.describe()} | {rows == wanted} |", flush=True)
    return int(not equal)


@dataclass
class _Used:
    """What the workers have used since every node had one."""

    nodes: int
    processes: set[int] = field(default_factory=set)
    notes: list[tuple[float, int, float]] = field(default_factory=list)  # time, files, seconds
    mib: float = 0.0

    def note(self, done: int, total: int, failed: int) -> None:
        """Look at the processes after a part."""
        with suppress(psutil.Error):  # one has ended
            self._note(done)

    def _note(self, done: int) -> None:
        pairs = list(_workers())
        found = {process.pid for pair in pairs for process in pair}
        if len(pairs) < self.nodes:  # one has not begun, or has ended
            return
        if found != self.processes:
            self.processes, self.notes = found, []
        self.notes.append((time.monotonic(), done, sum(map(_processor_seconds, pairs))))
        self.mib = max(self.mib, *map(_mib, pairs))

    def describe(self) -> str:
        """Return images/s, processor ms per image, MiB of a worker and the load as cells.

        Where too few parts were done while every node had a worker, the first one says so.
        """
        if len(self.notes) <= self.nodes * _LEAST_PARTS:
            return f"too few parts ({len(self.notes)}): pass more --files | | |"
        (began, before, seconds_before), (now, done, seconds) = self.notes[0], self.notes[-1]
        rate = (done - before) / (now - began)
        ms = 1000 * (seconds - seconds_before) / (done - before)
        return f"{rate:.1f} | {ms:.1f} | {self.mib:.0f} | {os.getloadavg()[0]:.0f}"


Pair = tuple[psutil.Process, psutil.Process]


def _workers() -> Iterator[Pair]:
    """Yield each worker with its decoding process."""
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):  # it has ended
            if worker.__name__ in process.cmdline():
                yield process, psutil.Process(process.ppid())


def _processor_seconds(pair: Pair) -> float:
    return float(sum(sum(process.cpu_times()[:2]) for process in pair))  # user and system


def _mib(pair: Pair) -> float:
    return sum(float(process.memory_info().rss) for process in pair) / _MIB


def _local_rows(predictor: Predictor, folder: Path) -> list[dict[str, Any]]:
    out, files = folder / "local.parquet", str(folder / "files")
    label(predictor, [], [str(out)], files_from=files, batch_size=_BATCH_SIZE)
    return _rows(out)


def _ray_rows(predictor: Predictor, folder: Path, nodes: int, used: _Used) -> list[dict[str, Any]]:
    out = folder / f"nodes-{nodes}"
    with _nodes(nodes) as address:
        os.environ["RAY_ADDRESS"] = address
        with ray_cluster():
            label_on_ray(
                predictor,
                [],
                [str(out)],
                files_from=str(folder / "files"),
                batch_size=_BATCH_SIZE,
                on_progress=used.note,
            )
    return _rows(out)


def _rows(path: Path) -> list[dict[str, Any]]:
    rows: Sequence[dict[str, Any]] = pq.read_table(path).to_pylist()
    return list(rows)


@contextmanager
def _nodes(count: int) -> Iterator[str]:
    """Give the address of a cluster of nodes with one CPU each."""
    from ray.cluster_utils import Cluster

    each = {"num_cpus": 1, "object_store_memory": _STORE_BYTES, "include_log_monitor": False}
    head = {**each, "include_dashboard": False, "no_monitor": True}
    cluster: Any = Cluster(initialize_head=True, head_node_args=head)
    try:
        for _ in range(count - 1):
            cluster.add_node(**each)
        yield str(cluster.address)
    finally:
        cluster.shutdown()


if __name__ == "__main__":
    sys.exit(main())
