"""Compare labelling with the bound of the CPU cores, other precisions and two other programs.

    python -m benchmarks.label --bundle BUNDLE --images DIR [--int8 BUNDLE2] [--photos DIR2]
        [--rounds N]

The bound is cores / (processor seconds of decoding, preparing and ONNX Runtime per image, each
measured alone on one thread), with the bundle in float32. The other programs run on the same files:
a PyTorch DataLoader with torchvision's transforms and the backbone in eager mode; and one process
that decodes with Pillow and runs ONNX Runtime image by image. Only bundles with EfficientNet-Lite0
are supported.

`label_int8` compares labelling with BUNDLE2, which is BUNDLE in int8, and `label_openvino` that of
`--provider openvino` with the faster of both, each with the bound in float32 of the same run.
OpenVINO is measured where it is installed, and has a bound where the CPU has AMX or VNNI.

The programs take turns in every round, and the median of the ratios counts, because other work on
the machine slows all of them. The processor time per image does not depend on other work. A table
has the medians, also of the photographs of 12 megapixels in DIR2, if it is given; where it is
missing, it is filled with 200 of the images, enlarged.

The last lines compare each figure of DIR with its bound; the exit code is 0 only if all that apply
pass.
"""

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms

from benchmarks.speed.answers import Answer, NotApplicable, exit_code
from benchmarks.speed.photographs import PHOTOGRAPHS, photographs_in
from benchmarks.speed.precisions import int8_version, why_no_faster_openvino, why_no_openvino
from benchmarks.speed.rates import Rate, Rates, middle, shown, table
from scda.models.bundle import MODEL, bundle_folder
from scda.models.cpus import usable_cpus
from scda.models.decoding.content import read_bytes
from scda.models.errors import UsageError
from scda.models.folders import walk
from scda.models.images import read_pixels
from scda.models.networks.backbones import load_backbone
from scda.models.predictor import Predictor, load_predictor
from scda.models.session import OPENVINO, Session
from scda.serve.labelling.label import label

_SAMPLE = 320  # number of images for measuring the bound
_BATCH = 32  # batch size of PyTorch
# Its workers are forked beside the threads of ONNX Runtime and could hang: then, raise an error.
_PATIENCE = 300  # seconds for a batch
_BATCH_CPU = 8  # batch size of ONNX Runtime with one thread
BOUND, FLOAT32, INT8, OV = "bound, float32", "scda, float32", "scda, int8", "scda, OpenVINO"
INT8_OV, IMAGES = "scda, int8, OpenVINO", "images"
SINGLE, EAGER = "Pillow and ONNX Runtime, one process", "DataLoader, eager PyTorch"

Program = Callable[[Sequence[Path]], None]


def main(argv: Sequence[str] | None = None) -> int:
    """Measure the bound, scda and the other programs in rounds; return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--bundle", type=Path, required=True)
    parser.add_argument("--images", type=Path, required=True)
    parser.add_argument("--int8", type=Path, help="the bundle in int8")
    parser.add_argument("--photos", type=Path, help="photographs of 12 megapixels; may be missing")
    parser.add_argument(
        "--rounds",
        type=int,
        default=1,
        help="each takes its share of the files",
    )
    given = parser.parse_args(argv)
    try:
        predictor = load_predictor(bundle_folder(given.bundle), provider="cpu", threads=1)
        work = programs(predictor, given.int8)
    except UsageError as error:
        parser.error(str(error))
    paths = {IMAGES: list(walk(given.images))}
    if given.photos:
        paths[PHOTOGRAPHS] = photographs_in(given.photos, paths[IMAGES])
    shares = range(given.rounds)
    rounds = {
        what: [measured(predictor, work, every[i :: given.rounds]) for i in shares]
        for what, every in paths.items()
    }
    print("", table({what: middle(found) for what, found in rounds.items()}), sep="\n")
    return exit_code(answers(rounds[IMAGES]))


def programs(predictor: Predictor, int8: Path | None) -> dict[str, Program]:
    """Return what labels images, by its name.

    Args:
        predictor: The bundle in float32, with one thread per call.
        int8: The same in int8, if there is one.

    Raises:
        UsageError: If `int8` is not made from the bundle of the predictor.
    """
    folder = predictor.folder
    found: dict[str, Program] = {FLOAT32: partial(ours, predictor)}
    if int8:
        version = int8_version(int8, predictor.manifest)
        found[INT8] = partial(ours, load_predictor(version, provider="cpu", threads=1))
    if not why_no_openvino():
        found[OV] = partial(ours, load_predictor(folder, provider=OPENVINO, threads=1))
        if int8:
            found[INT8_OV] = partial(ours, load_predictor(version, provider=OPENVINO, threads=1))
    found[SINGLE] = lambda paths: single(Session(folder / MODEL, provider="cpu"), paths)
    found[EAGER] = with_torch
    return found


def measured(predictor: Predictor, work: Mapping[str, Program], paths: Sequence[Path]) -> Rates:
    """Return and print the rates of the bound and of the programs, which label all files."""
    each = processor_seconds(predictor, paths[:: max(1, len(paths) // _SAMPLE)])
    rates = {BOUND: Rate(usable_cpus() / each, each)}
    for name, program in work.items():
        seconds, processor = _timed(partial(program, paths))
        rates[name] = Rate(len(paths) / seconds, processor / len(paths))
    load = os.getloadavg()[0]
    print(f"{len(paths)} files, load {load:.1f}, {shown(rates)}", flush=True)
    return rates


def answers(rounds: Sequence[Rates]) -> list[Answer | NotApplicable]:
    """Return the median ratios of the rounds, compared with their bounds."""

    def ratio(name: str, one: str, other: str, bar: float) -> Answer:
        found = (rates[one].per_second / rates[other].per_second for rates in rounds)
        return Answer(name, statistics.median(found), bar, at_least=True)

    no_int8 = None if INT8 in rounds[0] else "no bundle of --int8"
    no_openvino = why_no_faster_openvino()
    # AMX makes bf16 fast, in which OpenVINO runs the bundle in float32; VNNI makes int8 fast.
    with_openvino = [
        ratio("label_openvino", name, BOUND, 1.5) for name in (OV, INT8_OV) if name in rounds[0]
    ]
    return [
        ratio("label_bound", FLOAT32, BOUND, 0.92),
        ratio("label_vs_torch", FLOAT32, EAGER, 2),
        ratio("label_vs_single", FLOAT32, SINGLE, 1.15),
        NotApplicable("label_int8", no_int8) if no_int8 else ratio("label_int8", INT8, BOUND, 1.2),
        NotApplicable("label_openvino", no_openvino)
        if no_openvino
        else max(with_openvino, key=lambda answer: answer.ratio),
    ]


def processor_seconds(predictor: Predictor, paths: Sequence[Path]) -> float:
    """Return the smallest processor time of one image in seconds, one thread at a time."""
    _answer(predictor, paths[:_BATCH_CPU])  # codecs are loaded, and memory is allocated, once
    began = time.process_time()
    _answer(predictor, paths)
    return (time.process_time() - began) / len(paths)


def _answer(predictor: Predictor, paths: Sequence[Path]) -> None:
    preprocessing = predictor.manifest.preprocessing
    pixels = np.stack([read_pixels(read_bytes(path), preprocessing) for path in paths])
    for start in range(0, len(pixels), _BATCH_CPU):
        predictor.session.run(pixels[start : start + _BATCH_CPU])


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
