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
import pytest
import torch

from scda.adapt.data.dataset import read_data
from scda.adapt.data.job import Job
from scda.adapt.data.recorded import Recorded
from scda.adapt.data.scan import scan_source, scan_target
from scda.adapt.pipeline.run import train
from scda.adapt.pipeline.statistics import choose_statistics
from scda.adapt.runs.folder import RunFolder
from scda.adapt.runs.tables import read_discovery
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
    check_answers(tiny.job(tiny_run), images, tmp_path)


@pytest.mark.slow
def test_a_model_trained_on_photographs_answers_for_them(tiny: TinyData, tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    shutil.copytree(tiny.source, source)
    shutil.copytree(tiny.target, target)
    for folder in (target, source / "blue_disc"):
        write_photographs(folder)
    job = tiny.job(tmp_path / "run", source=source, target=target, cache=tmp_path / "cache")
    with Reporter(quiet=True) as reporter:
        trained = train(job, reporter)
    assert trained is not None
    assert trained.rejected == 0
    rows = {row.path: row for row in read_discovery(RunFolder(job.out).discovery)}
    assert rows.keys() > PHOTOGRAPHS
    answers = check_answers(job, target, tmp_path)
    for name in PHOTOGRAPHS:
        assert abs(answers[name][1] - rows[name].confidence) <= WITHIN, name


def check_answers(job: Job, images: Path, folder: Path) -> "Answers":
    """Compare the answers of torch, `label` and the server, and return them."""
    by_torch = predicted_by_torch(job, images)
    by_label = predicted_by_label(images, job.out, folder)
    by_http = predicted_by_http(images, job.out)
    assert set(by_torch) == set(by_label) == set(by_http)
    for name, (label, confidence) in by_torch.items():
        for other in (by_label[name], by_http[name]):
            assert abs(other[1] - confidence) <= WITHIN, name
            assert other[0] == label
    return by_torch


PHOTOGRAPHS = {"photo.heic", "several.jpg", "p3.jpg", "large.jpg"}


def write_photographs(folder: Path) -> None:
    """Write what phones and cameras make: HEIC, several pictures in one, colours, 12 megapixels."""
    heic = Path(__file__).parent / "fixtures" / "heic" / "turned-p3.heic"
    shutil.copy(heic, folder / "photo.heic")
    photo, p3 = four().resize((400, 300)), profile(DISPLAY_P3)
    photo.save(folder / "several.jpg", "MPO", save_all=True, append_images=[four()])
    photo.save(folder / "p3.jpg", icc_profile=p3)
    photo.resize((4000, 3000)).save(folder / "large.jpg")


Answers = dict[str, tuple[str, float]]


def predicted_by_torch(job: Job, images: Path) -> Answers:
    """From the last checkpoint: the trained modules themselves, no ONNX in between."""
    run, backbone = job.out, load_backbone("conv4", weights=Path(job.config.weights))
    form = Networks(FeatureHead(backbone.width, (512, 256, 256)), torch.nn.Identity())
    state = load(run / "checkpoints", form)
    assert state is not None
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
