import csv
import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch

from scda.adapt.data.dataset import read_data
from scda.adapt.data.recorded import Recorded
from scda.adapt.data.scan import scan_source, scan_target
from scda.adapt.pipeline.statistics import choose_statistics
from scda.adapt.runtime.progress import Reporter
from scda.adapt.training.checkpoint import load
from scda.adapt.training.domains import Domains
from scda.adapt.training.networks import Networks
from scda.models.bundle import read_manifest
from scda.models.images import read_pixels
from scda.models.networks.backbones import load_backbone
from scda.models.networks.network import FeatureHead, PixelClassifier, Tempered
from tests.colour_profiles import DISPLAY_P3, profile
from tests.conftest import TinyData
from tests.nasty import four

WITHIN = 1e-4  # of a confidence, as the contract says


def test_torch_label_and_http_say_the_same(tiny: TinyData, tiny_run: Path, tmp_path: Path) -> None:
    images = tmp_path / "images"
    shutil.copytree(tiny.target, images)
    write_photographs(images)
    by_torch = predicted_by_torch(tiny, tiny_run, images)
    by_label = predicted_by_label(images, tiny_run, tmp_path)
    by_http = predicted_by_http(images, tiny_run)
    assert set(by_torch) == set(by_label) == set(by_http)
    for name, (label, confidence) in by_torch.items():
        for other in (by_label[name], by_http[name]):
            assert abs(other[1] - confidence) <= WITHIN, name
            assert other[0] == label


def write_photographs(folder: Path) -> None:
    """Write what phones and cameras make: HEIC, several pictures in one, colours, 12 megapixels."""
    heic = Path(__file__).parent / "fixtures" / "heic" / "turned-p3.heic"
    shutil.copy(heic, folder / "photo.heic")
    photo, p3 = four().resize((400, 300)), profile(DISPLAY_P3)
    photo.save(folder / "several.jpg", "MPO", save_all=True, append_images=[four()])
    photo.save(folder / "p3.jpg", icc_profile=p3)
    photo.resize((4000, 3000)).save(folder / "large.jpg")


Answers = dict[str, tuple[str, float]]


def predicted_by_torch(tiny: TinyData, run: Path, images: Path) -> Answers:
    """From the last checkpoint: the trained modules themselves, no ONNX in between."""
    backbone = load_backbone("conv4", weights=tiny.weights)
    form = Networks(FeatureHead(backbone.width, (512, 256, 256)), torch.nn.Identity())
    state = load(run / "checkpoints", form)
    assert state is not None
    job = tiny.job(run)
    source, target = (
        scan_source(job.source, recursive=job.recursive),
        scan_target(job.target, recursive=job.recursive),
    )
    with Reporter(quiet=True) as reporter:
        data = read_data(job, source, target, backbone, reporter)
        chosen = choose_statistics(job, data, backbone, reporter, Recorded())
    # A checkpoint holds F as it is trained, on whitened features.
    head = Domains(chosen.source, chosen.target, job.config).on_backbone(state.networks.head)
    module = PixelClassifier(chosen.backbone, head, state.networks.classifier).eval()
    paths = sorted(images.iterdir())
    pixels = np.stack([read_pixels(p.read_bytes(), backbone.preprocessing) for p in paths])
    with torch.inference_mode():
        probabilities, _ = module(torch.from_numpy(pixels))
    # The checkpoint's discovered classes are not yet numbered by size.
    manifest = read_manifest(run / "bundle")
    labels = [info.label for info in manifest.classes]
    sizes = probabilities.argmax(dim=1).bincount(minlength=len(labels))[3:]
    order = [0, 1, 2, *(3 + np.argsort(-sizes.numpy(), kind="stable"))]
    assert manifest.calibration  # which the checkpoint does not have yet
    temperatures = [manifest.calibration.temperature[i] for i in manifest.class_ids]
    tempered = Tempered(torch.tensor(temperatures))
    ordered = tempered(probabilities[:, order].log()).softmax(dim=1)
    return {
        path.name: (labels[int(row.argmax())], float(row.max()))
        for path, row in zip(paths, ordered, strict=True)
    }


def predicted_by_label(images: Path, run: Path, tmp_path: Path) -> Answers:
    out = tmp_path / "labels.csv"
    words = [sys.executable, "-m", "scda.adapt", "label", run, images, "--out", out]
    subprocess.run([*map(str, words), "--quiet"], check=True)
    with out.open(newline="") as file:
        return {r["path"]: (r["label"], float(r["confidence"])) for r in csv.DictReader(file)}


def predicted_by_http(images: Path, run: Path) -> Answers:
    answers = {}
    with served(run) as address:
        for path in sorted(images.iterdir()):
            request = urllib.request.Request(f"{address}/v1/predict", data=path.read_bytes())
            with urllib.request.urlopen(request) as response:
                answer: dict[str, Any] = json.load(response)
            answers[path.name] = (answer["label"], answer["confidence"])
    return answers


@contextmanager
def served(run: Path) -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    words = [sys.executable, "-m", "scda.adapt", "serve", str(run), "--port", str(port)]
    process = subprocess.Popen(words, env={**os.environ, "OMP_NUM_THREADS": "1"})
    try:
        address = f"http://127.0.0.1:{port}"
        wait_until_ready(f"{address}/readyz", process)
        yield address
    finally:
        process.terminate()
        process.wait(timeout=60)


def wait_until_ready(url: str, process: "subprocess.Popen[bytes]") -> None:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        assert process.poll() is None, "the server ended"
        try:
            with urllib.request.urlopen(url):
                return
        except (urllib.error.URLError, ConnectionError):
            time.sleep(0.2)
    raise AssertionError("the server was never ready")
