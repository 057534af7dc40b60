"""Measure time and size of the report for a synthetic target of many photographs.

python -m benchmarks.report --run RUN [--images 2000] [--width 1600]

RUN is a finished run. Its target images are enlarged to photographs and repeated until there are
enough, together with their rows of discovery.csv; the other files of the run stay the same.
"""

import argparse
import csv
import io
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from benchmarks.speed.answers import Answer, exit_code
from scda.adapt.report.report import write_report
from scda.adapt.runs.folder import RunFolder, read_config
from scda.adapt.runs.target_map import make_map, write_map
from scda.adapt.runtime.progress import Reporter
from scda.models.images import read_file
from scda.models.index import Features, read_index

_MOST_SECONDS, _MOST_MB = 30.0, 5.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print the figures; return 0 only if all pass."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--run", type=Path, required=True, help="a finished run")
    parser.add_argument("--images", type=int, default=2_000, help="images of the synthetic target")
    parser.add_argument("--width", type=int, default=1_600, help="width of each image in pixels")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as name:
        run = enlarged(RunFolder(options.run), Path(name), options.images, options.width)
        map_seconds = _write_map(run, options.images)
        start, processor = time.perf_counter(), time.process_time()
        with Reporter(quiet=True) as reporter:
            path = write_report(run.root, reporter)
        seconds, megabytes = time.perf_counter() - start, path.stat().st_size / 1e6
        processor = time.process_time() - processor
    print(f"images={options.images} width={options.width} map_seconds={map_seconds:.1f}")
    # Processor time of all threads distinguishes a slow report from a busy machine.
    print(f"processor_seconds={processor:.1f}")
    return exit_code(
        [
            Answer("report_seconds", seconds, _MOST_SECONDS),
            Answer("report_mb", megabytes, _MOST_MB),
        ]
    )


def enlarged(old: RunFolder, folder: Path, images: int, width: int) -> RunFolder:
    """Return a copy of a run in `folder` whose target has `images` photographs."""
    run = RunFolder(folder / "run")
    shutil.copytree(old.root, run.root, ignore=shutil.ignore_patterns("checkpoints"))
    config = read_config(old)
    target = folder / "target"
    target.mkdir()
    rows = list(csv.DictReader(old.discovery.read_text().splitlines()))
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, list(rows[0]))
    writer.writeheader()
    for number in range(images):
        row = rows[number % len(rows)]
        name = f"{number:06d}.jpg"
        image = read_file(Path(config["target"]) / row["path"])
        size = (width, round(width * image.height / image.width))
        image.resize(size, Image.Resampling.BILINEAR).save(target / name, quality=90)
        writer.writerow({**row, "path": name})
    run.discovery.write_text(buffer.getvalue())
    run.config.write_text(json.dumps({**config, "target": str(target)}))
    return run


def _write_map(run: RunFolder, images: int) -> float:
    """Write the map of as many noisy copies of the features; return the seconds."""
    index = read_index(run.bundle / "neighbours.faiss")
    own: Features = np.stack([index.reconstruct(row) for row in range(index.ntotal)])
    generator = np.random.default_rng(0)
    noise = generator.normal(0, 0.01, (images, own.shape[1]))
    features = np.asarray(own[np.arange(images) % len(own)] + noise, np.float32)
    start = time.perf_counter()
    rows, places = make_map(features, seed=0)
    write_map(run.map, [f"{row:06d}.jpg" for row in rows], places)
    return time.perf_counter() - start


if __name__ == "__main__":
    sys.exit(main())
