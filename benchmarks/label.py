"""Compare labelling with the bound of the CPU cores and with two other programs.

    python -m benchmarks.label --bundle BUNDLE --images DIR [--rounds N]

The bound is cores / (processor seconds of decoding, preparing and ONNX Runtime per image, each
measured alone on one thread). The other programs run on the same files: a PyTorch DataLoader with
torchvision's transforms and the backbone in eager mode; and one process that decodes with Pillow
and runs ONNX Runtime image by image. Only bundles with EfficientNet-Lite0 are supported.

The programs take turns in every round, and the median of the ratios counts, because other work on
the machine slows all of them. The processor time per image does not depend on other work.

The last lines compare each figure with its bound; the exit code is 0 only if all pass.
"""

import argparse
import os
import statistics
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

from benchmarks.speed.answers import Answer, exit_code
from scda.models.bundle import MODEL, bundle_folder
from scda.models.cpus import usable_cpus
from scda.models.decoding.content import read_bytes
from scda.models.folders import walk
from scda.models.images import read_pixels
from scda.models.networks.backbones import load_backbone
from scda.models.predictor import Predictor, load_predictor
from scda.models.session import Session
from scda.serve.labelling.label import label

_SAMPLE = 320  # number of images for measuring the bound
_BATCH = 32  # batch size of PyTorch
# Its workers are forked beside the threads of ONNX Runtime and could hang: then, raise an error.
_PATIENCE = 300  # seconds for a batch
_BATCH_CPU = 8  # batch size of ONNX Runtime with one thread


def main() -> int:
    """Measure the bound, scda and the two other programs in rounds; return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--bundle", type=Path, required=True)
    parser.add_argument("--images", type=Path, required=True)
    parser.add_argument(
        "--rounds",
        type=int,
        default=1,
        help="each takes its share of the files",
    )
    given = parser.parse_args()
    predictor = load_predictor(bundle_folder(given.bundle), provider="cpu", threads=1)
    paths = list(walk(given.images))
    rounds = [measured(predictor, paths[i :: given.rounds]) for i in range(given.rounds)]
    bars = {"bound": 0.85, "torch": 2, "single": 1.15}
    names = {"bound": "label_bound", "torch": "label_vs_torch", "single": "label_vs_single"}
    ratios = {name: [rates["ours"] / rates[name] for rates in rounds] for name in bars}
    return exit_code(
        [
            Answer(names[name], statistics.median(ratios[name]), bar, at_least=True)
            for name, bar in bars.items()
        ]
    )


def measured(predictor: Predictor, paths: Sequence[Path]) -> dict[str, float]:
    """Return and print the images per second of the bound, of scda and of the other programs."""
    work = {
        "ours": lambda: ours(predictor, paths),
        "single": lambda: single(Session(predictor.folder / MODEL, provider="cpu"), paths),
        "torch": lambda: with_torch(paths),
    }
    each = processor_seconds(predictor, paths[:: max(1, len(paths) // _SAMPLE)])
    used = {name: _timed(call) for name, call in work.items()}
    rates = {"bound": usable_cpus() / each}
    rates |= {name: len(paths) / seconds for name, (seconds, _) in used.items()}
    processor = {"bound": each} | {name: used[name][1] / len(paths) for name in used}
    shown = (f"{n} {rates[n]:.1f} ({1000 * processor[n]:.1f} ms)" for n in rates)
    print(f"{len(paths)} files, images/s (processor time of one): {', '.join(shown)}", end="")
    print(f"; load {os.getloadavg()[0]:.1f}", flush=True)
    return rates


def processor_seconds(predictor: Predictor, paths: Sequence[Path]) -> float:
    """Return the smallest processor time of one image in seconds, one thread at a time."""
    preprocessing = predictor.manifest.preprocessing
    began = time.process_time()
    pixels = np.stack([read_pixels(read_bytes(path), preprocessing) for path in paths])
    for start in range(0, len(pixels), _BATCH_CPU):
        predictor.session.run(pixels[start : start + _BATCH_CPU])
    return (time.process_time() - began) / len(paths)


def ours(predictor: Predictor, paths: Sequence[Path]) -> None:
    """Label like the command."""
    with tempfile.TemporaryDirectory() as name:
        files = Path(name, "files")
        files.write_bytes(b"".join(os.fsencode(path) + b"\0" for path in paths))
        label(predictor, [], [f"{name}/rows.csv"], files_from=str(files))


@torch.inference_mode()
def with_torch(paths: Sequence[Path]) -> None:
    """Run a plain inference script; leaving out the head is in its favour."""
    network = load_backbone("efficientnet_lite0").network
    files, workers = _Files(paths), usable_cpus()
    for batch in DataLoader(files, batch_size=_BATCH, num_workers=workers, timeout=_PATIENCE):
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
    """Decode, resize, crop and run image by image, with ONNX Runtime on all cores."""
    for path in paths:
        image = Image.open(path).convert("RGB")
        scale = 256 / min(image.size)
        image = image.resize((round(image.width * scale), round(image.height * scale)))
        left, top = (image.width - 224) // 2, (image.height - 224) // 2
        session.run(np.asarray(image.crop((left, top, left + 224, top + 224)))[None])


def _timed(work: Callable[[], None]) -> tuple[float, float]:
    """Return the seconds and the processor seconds of some work, including its processes."""
    began, before = time.perf_counter(), sum(os.times()[:4])
    work()
    return time.perf_counter() - began, sum(os.times()[:4]) - before


if __name__ == "__main__":
    sys.exit(main())
