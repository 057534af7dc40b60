"""Compare memory and speed of labelling with those for ten times as many files.

    python -m benchmarks.label_memory --bundle BUNDLE [--files 20000]

The images are tiny and synthetic, and all are in one folder, which is the hardest case because the
names of a folder are sorted. Memory is the peak of the main process plus, for each decoding
process, the largest peak of any of them.

The last lines compare each figure with its bound; the exit code is 0 only if all pass.
"""

import argparse
import io
import json
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from benchmarks.speed.answers import Answer, exit_code
from scda.models.bundle import bundle_folder
from scda.models.cpus import usable_cpus
from scda.models.predictor import load_predictor
from scda.serve.labelling.label import label

_SIDE_PX = 32
_DIFFERENT = 200  # number of distinct images; the other files are copies
_KIB_PER_MIB = 1024


def main() -> int:
    """Measure a folder and one of ten times as many files; return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--bundle", type=Path, required=True)
    parser.add_argument("--files", type=int, default=20_000)
    parser.add_argument("--only", type=Path, help="label this folder and print the figures")
    given = parser.parse_args()
    if given.only:
        print(json.dumps(measured(given.bundle, given.only)))
        return 0
    few, many = (in_new_process(given.bundle, count) for count in (given.files, 10 * given.files))
    return exit_code(
        [
            Answer("label_memory", many["mib"] / few["mib"], 1.1),
            Answer("label_rate", many["rate"] / few["rate"], 1, at_least=True),
        ]
    )


def in_new_process(bundle: Path, count: int) -> dict[str, float]:
    """Return the figures of labelling `count` files in a new process."""
    with tempfile.TemporaryDirectory() as name:
        make_images(Path(name), count)
        words = [sys.executable, __file__, "--bundle", str(bundle), "--only", name]
        figures: dict[str, float] = json.loads(subprocess.check_output(words))
    load = os.getloadavg()[0]
    shown = ", ".join(f"{what} {figure:.4g}" for what, figure in figures.items())
    print(f"{count} files: {shown}; load {load:.1f}", flush=True)
    return figures


def make_images(folder: Path, count: int) -> None:
    """Write images of noise."""
    generator = np.random.default_rng(0)
    shape = (_DIFFERENT, _SIDE_PX, _SIDE_PX, 3)
    files = [_jpeg(noise) for noise in generator.integers(0, 256, shape, dtype=np.uint8)]
    for number in range(count):
        (folder / f"{number:07d}.jpg").write_bytes(files[number % _DIFFERENT])


def _jpeg(pixels: Any) -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "JPEG")
    return file.getvalue()


def measured(bundle: Path, images: Path) -> dict[str, float]:
    """Label like the command; return images/s, processor ms per image and peak memory in MiB."""
    predictor = load_predictor(bundle_folder(bundle), provider="cpu", threads=1)
    with tempfile.TemporaryDirectory() as folder:
        summary = label(predictor, [images], [f"{folder}/rows.csv", f"{folder}/rows.parquet"])
    own, others = (
        resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    )
    seconds = sum(used.ru_utime + used.ru_stime for used in (own, others))
    return {
        "rate": summary.images_per_second,
        "processor_ms": 1000 * seconds / summary.num_files,
        "mib": (own.ru_maxrss + usable_cpus() * others.ru_maxrss) / _KIB_PER_MIB,
    }


if __name__ == "__main__":
    sys.exit(main())
