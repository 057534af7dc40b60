"""How close does labelling come to what the cores can do, and to what others do with them?

    python benchmarks/label.py --bundle BUNDLE --images DIR

The bound is cores / (processor seconds of decoding, preparing and ONNX Runtime per image, each
alone on one thread). Beside it, in the same run and on the same files: a PyTorch DataLoader with
torchvision's transforms and the backbone in eager mode, and one process that decodes with Pillow
and runs ONNX Runtime image by image. Bundles with EfficientNet-Lite0 only.

Ends with a line for each answer; exit code 0 only if all pass.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms

from answers import Answer, exit_code
from scda.models.backbones import load_backbone
from scda.models.bundle import MODEL, bundle_folder
from scda.models.cpus import usable_cpus
from scda.models.files import walk
from scda.models.images import read_file
from scda.models.predictor import Predictor, load_predictor
from scda.models.session import Session
from scda.serve.label import label

_SAMPLE = 320  # images that the bound is measured on
_BATCH = 32


def main() -> int:
    """Measure the bound, ours and the two others; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bundle", type=Path, required=True)
    parser.add_argument("--images", type=Path, required=True)
    given = parser.parse_args()
    folder, paths = bundle_folder(given.bundle), list(walk(given.images))
    predictor = load_predictor(folder, provider="cpu", threads=1)
    bound = usable_cpus() / processor_seconds(predictor, paths[:: max(1, len(paths) // _SAMPLE)])
    rates = {
        "ours": _rate(len(paths), lambda: ours(predictor, given.images)),
        "torch": _rate(len(paths), lambda: with_torch(paths)),
        "single": _rate(len(paths), lambda: single(Session(folder / MODEL), paths)),
    }
    said = ", ".join(f"{name} {rate:.1f}" for name, rate in {"bound": bound, **rates}.items())
    print(f"{len(paths)} files, images/s: {said}")
    return exit_code(
        [
            Answer("label_bound", rates["ours"] / bound, 0.85, at_least=True),
            Answer("label_vs_torch", rates["ours"] / rates["torch"], 2, at_least=True),
            Answer("label_vs_single", rates["ours"] / rates["single"], 1.15, at_least=True),
        ]
    )


def processor_seconds(predictor: Predictor, paths: Sequence[Path]) -> float:
    """Return the processor seconds that one image costs at least, one thread at a time."""
    session = Session(predictor.folder / MODEL, provider="cpu", threads=1)
    began = time.process_time()
    pixels = np.stack([predictor.prepare(read_file(path)) for path in paths])
    for start in range(0, len(pixels), _BATCH):
        session.run(pixels[start : start + _BATCH])
    return (time.process_time() - began) / len(paths)


def ours(predictor: Predictor, images: Path) -> None:
    """Label as the command does."""
    with tempfile.TemporaryDirectory() as folder:
        label(predictor, [images], [f"{folder}/rows.csv"], batch_size=_BATCH)


@torch.inference_mode()
def with_torch(paths: Sequence[Path]) -> None:
    """Do what a plain inference script does; the head is left out, in its favour."""
    network = load_backbone("efficientnet_lite0").network
    for batch in DataLoader(_Files(paths), batch_size=_BATCH, num_workers=usable_cpus()):
        network(batch)


class _Files(Dataset[Tensor]):
    def __init__(self, paths: Sequence[Path]) -> None:
        self._paths = paths
        self._prepare = transforms.Compose(
            [
                transforms.Resize(256, transforms.InterpolationMode.BICUBIC),
                transforms.CenterCrop(224),
                transforms.ToTensor(),
                transforms.Normalize([0.498] * 3, [0.502] * 3),
            ]
        )

    def __len__(self) -> int:
        return len(self._paths)

    def __getitem__(self, row: int) -> Tensor:
        prepared: Tensor = self._prepare(Image.open(self._paths[row]).convert("RGB"))
        return prepared


def single(session: Session, paths: Sequence[Path]) -> None:
    """Decode, resize, crop and run image by image; ONNX Runtime has all cores."""
    for path in paths:
        image = Image.open(path).convert("RGB")
        scale = 256 / min(image.size)
        image = image.resize((round(image.width * scale), round(image.height * scale)))
        left, top = (image.width - 224) // 2, (image.height - 224) // 2
        session.run(np.asarray(image.crop((left, top, left + 224, top + 224)))[None])


def _rate(images: int, work: Callable[[], None]) -> float:
    began = time.perf_counter()
    work()
    return images / (time.perf_counter() - began)


if __name__ == "__main__":
    sys.exit(main())
