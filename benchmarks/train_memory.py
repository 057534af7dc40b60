"""Measure the peak memory of `train` on a large target.

    python -m benchmarks.train_memory [--images 20000] [--backbone conv4|efficientnet_lite0]
        [--computed 500]

Creates a source of 10 classes and a target of 15, coloured shapes on noise, in a temporary folder,
runs `scda-adapt train` on them in a new process, and reads its peak memory (ru_maxrss). conv4 has
random weights, because memory depends on shapes alone. Images and features are made in other
processes, because the peak of a forked process begins with that of its parent.

Computing features takes the same memory for any number of images, because it works in batches.
Therefore only `--computed` features of the target are computed; the others are random and are in
the cache from the start.

The last line compares the figure with its bound; the exit code is 0 only if it passes.
"""

import argparse
import colorsys
import hashlib
import multiprocessing
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

from benchmarks.speed.answers import Answer, exit_code

KNOWN, ALL = 10, 15  # number of classes of the source and of the target
OF_SOURCE = 50  # number of source images per class
SIDE_PX = 64
MOST_GB = 3.0


def picture(label: int, rng: np.random.Generator) -> Image.Image:
    """Return a shape in the colour of its class on grey noise."""
    noise = rng.normal(110, 12, (SIDE_PX, SIDE_PX, 3)).clip(0, 255).astype(np.uint8)
    image = Image.fromarray(noise)
    red, green, blue = (int(255 * part) for part in colorsys.hsv_to_rgb(label / ALL, 0.9, 0.9))
    x, y = (int(place) for place in rng.integers(20, 44, 2))
    r = int(rng.integers(9, 16))
    box, draw = (x - r, y - r, x + r, y + r), ImageDraw.Draw(image)
    (draw.ellipse if label % 2 else draw.rectangle)(box, fill=(red, green, blue))
    return image


def make_images(root: Path, images: int) -> None:
    """Write both domains."""
    rng = np.random.default_rng(0)
    for number in range(KNOWN * OF_SOURCE):
        folder = root / "source" / f"class-{number % KNOWN}"
        folder.mkdir(parents=True, exist_ok=True)
        picture(number % KNOWN, rng).save(folder / f"{number}.jpg")
    (root / "target").mkdir()
    for number in range(images):
        picture(number % ALL, rng).save(root / "target" / f"{number:06d}.jpg")


def random_weights(path: Path) -> None:
    """Write weights for conv4."""
    from safetensors.torch import save_file

    from scda.models.networks.conv4 import Conv4

    save_file(Conv4().state_dict(), path)


def made_features(root: Path, backbone: str, weights: Path | None, computed: int) -> None:
    """Store features around one centre per class in the cache, for all but `computed` images."""
    from scda.adapt.data.feature_cache import FeatureCache
    from scda.models.networks.backbones import load_backbone

    loaded = load_backbone(backbone, weights=weights, image_size=0)
    cache, rng = FeatureCache(root / "cache", loaded), np.random.default_rng(1)
    centres = rng.normal(0, 1, (ALL, loaded.width))
    paths = sorted((root / "target").iterdir())[computed:]
    digests = [hashlib.sha256(path.read_bytes()).hexdigest() for path in paths]
    labels = np.arange(computed, computed + len(paths)) % ALL
    features = np.abs(centres[labels] + rng.normal(0, 0.5, (len(paths), loaded.width)))
    cache.add(digests, features.astype(np.float32))
    cache.close()


def apart(make: Callable[..., None], *arguments: object) -> None:
    """Call a function in a new process, so that this one stays small."""
    process = multiprocessing.get_context("spawn").Process(target=make, args=arguments)
    process.start()
    process.join()
    assert process.exitcode == 0


def train(root: Path, backbone: str, weights: Path | None) -> tuple[float, float]:
    """Return the peak memory of a run in GB, and its duration in seconds."""
    words = ["--source", "source", "--target", "target", "--out", "run", "--cache", "cache"]
    words += ["--backbone", backbone, "--novel", "yes", "--quiet"]
    words += ["--weights", str(weights)] if weights else []
    began = time.monotonic()
    argv = [sys.executable, "-m", "scda.adapt", "train", *words]
    process = subprocess.Popen(argv, cwd=root)
    _, status, usage = os.wait4(process.pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    return usage.ru_maxrss / 2**20, time.monotonic() - began


def main() -> int:
    """Measure and print the peak memory; return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--images", type=int, default=20_000)
    parser.add_argument("--backbone", default="conv4", choices=["conv4", "efficientnet_lite0"])
    parser.add_argument("--computed", type=int, default=500)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        apart(make_images, root, arguments.images)
        weights = root / "weights.safetensors" if arguments.backbone == "conv4" else None
        if weights:
            apart(random_weights, weights)
        apart(made_features, root, arguments.backbone, weights, arguments.computed)
        own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        gigabytes, seconds = train(root, arguments.backbone, weights)
    print(f"{arguments.images} images, {arguments.backbone}: {gigabytes:.2f} GB, {seconds:.0f} s")
    print(f"the measuring process itself: {own:.2f} GB")
    return exit_code([Answer("train_memory_gb", gigabytes, MOST_GB)])


if __name__ == "__main__":
    sys.exit(main())
