"""Compare the feature pass and a training step with the bare backbone.

    python -m benchmarks.train_speed --images DIR

The backbone is EfficientNet-Lite0 at 224 pixels, with 32 images per domain and step. scda reads the
files; the bare backbone has its pixels in memory and does nothing else. It runs in ONNX Runtime for
the features of a frozen backbone, in PyTorch for those of a backbone that learns, and forward and
backward in PyTorch for a training step. Both take turns, so that other work on the machine slows
both.

The last lines compare each figure with its bound; the exit code is 0 only if all pass.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

import numpy as np
import torch
from torch import Generator, Tensor, nn

from benchmarks.speed.answers import Answer, exit_code
from scda.adapt.config import TrainConfig
from scda.adapt.data import features
from scda.adapt.data.backbone_file import backbone_file
from scda.adapt.data.image_files import Images
from scda.adapt.training.finetune import ImageInputs
from scda.adapt.training.inputs import PseudoLabels
from scda.adapt.training.loop import retrain
from scda.adapt.training.networks import Networks
from scda.models.cpus import usable_cpus
from scda.models.folders import walk
from scda.models.networks.backbones import Backbone, load_backbone
from scda.models.networks.network import FeatureHead
from scda.models.session import Session

_BATCH = 32
_PASSES = 3  # number of forward passes of a step: source, pseudo-labelled, target
_CLASSES = 21
_BAR = 0.85


@dataclass(frozen=True)
class Contest:
    """The same number of images processed by scda and by the bare backbone in turns."""

    name: str
    images: int
    ours: Callable[[], None]
    bare: Callable[[], None]

    def answer(self, turns: int) -> Answer:
        """Return the rate of scda as a share of the bare backbone's, and print both."""
        self.bare()  # warm-up
        self.ours()
        pairs = [(_seconds(self.ours), _seconds(self.bare)) for _ in range(turns)]
        ours, bare = (turns * self.images / sum(times) for times in zip(*pairs, strict=True))
        print(f"{self.name}: {ours:.1f} images/s, bare {bare:.1f}", flush=True)
        return Answer(self.name, ours / bare, _BAR, at_least=True)


def main() -> int:
    """Run the four contests; return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--images", type=Path, required=True)
    parser.add_argument("--sample", type=int, default=640, help="images of a feature pass")
    parser.add_argument("--steps", type=int, default=6, help="training steps of a turn")
    parser.add_argument("--turns", type=int, default=2)
    given = parser.parse_args()
    paths = list(walk(given.images))
    images = Images(given.images, paths[:: max(1, len(paths) // given.sample)][: given.sample])
    torch.set_num_threads(usable_cpus())
    contests = (frozen, tuned, *(step(part, given.steps) for part in ("last", "all")))
    return exit_code([contest(images).answer(given.turns) for contest in contests])


def frozen(images: Images) -> Contest:
    """Compare the pass that computes the cached features with its own ONNX Runtime session."""
    backbone = load_backbone("efficientnet_lite0")
    with tempfile.TemporaryDirectory() as folder:
        file = backbone_file(backbone, Path(folder))
        session = Session(file, provider="cpu")
        one_thread = Session(file, provider="cpu", threads=1)
    batches = [batch.numpy() for batch in _pixels(images, backbone)]

    def ours() -> None:
        # The export happens once per run, so it is left out of the rate.
        kept = patch.object(features, "_open", return_value=one_thread)
        with kept, tempfile.TemporaryDirectory() as folder:
            features.extract(images.paths, backbone, cache_folder=Path(folder))

    def bare() -> None:
        for batch in batches:
            session.run(batch)

    return Contest("features_frozen", len(images.paths), ours, bare)


def tuned(images: Images) -> Contest:
    """Compare the pass before each discovery with the same network in PyTorch."""
    inputs = _inputs(images, "last")
    batches = list(_pixels(images, load_backbone("efficientnet_lite0")))

    def ours() -> None:
        inputs.target_features(inputs.backbone)

    def bare() -> None:
        inputs.backbone.features(batches)

    return Contest("features_tuned", len(images.paths), ours, bare)


def step(part: str, steps: int) -> Callable[[Images], Contest]:
    """Compare retraining from files with forward and backward through the backbone."""

    def contest(images: Images) -> Contest:
        inputs = _inputs(images, part)
        head = FeatureHead(1280, (512, 256, 256))
        networks = Networks(head, nn.Linear(head.width, _CLASSES), inputs.backbone)
        labels = torch.arange(len(images.paths)) % _CLASSES
        config = TrainConfig(round_steps=steps, batch_size=_BATCH)
        (batch, *_) = _pixels(images, load_backbone("efficientnet_lite0"))

        def ours() -> None:
            pseudo = PseudoLabels(torch.arange(len(labels)), labels)
            generator = Generator().manual_seed(0)
            retrain(networks, inputs, labels, pseudo, config, generator, lambda *_: None)

        def bare() -> None:
            inputs.backbone.train()
            for _ in range(_PASSES * steps):
                inputs.backbone(batch).sum().backward()

        return Contest(f"step_{part}", _PASSES * _BATCH * steps, ours, bare)

    return contest


def _inputs(images: Images, part: str) -> ImageInputs:
    backbone = load_backbone("efficientnet_lite0")
    return ImageInputs(backbone, images, images, layers=part, workers=usable_cpus())


def _pixels(images: Images, backbone: Backbone) -> Iterator[Tensor]:
    rows = torch.arange(len(images.paths)).split(_BATCH)
    for part in rows:
        pixels = [images.read(int(row), backbone.preprocessing) for row in part]
        yield torch.from_numpy(np.stack(pixels))


def _seconds(work: Callable[[], None]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


if __name__ == "__main__":
    sys.exit(main())
