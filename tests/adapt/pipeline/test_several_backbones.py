import csv
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from scda.adapt.pipeline.run import train
from scda.adapt.runtime.progress import Reporter
from scda.models.bundle import Manifest, read_manifest
from scda.models.errors import UsageError
from scda.models.networks.conv4 import Conv4
from tests.conftest import TinyData

pytestmark = pytest.mark.usefixtures("no_figures")
WITHIN = 1e-4  # of a confidence


@pytest.fixture(scope="module")
def weights(tiny: TinyData, tmp_path_factory: pytest.TempPathFactory) -> str:
    torch.manual_seed(1)
    network = Conv4()
    for module in network.modules():
        if isinstance(module, torch.nn.Conv2d):
            torch.nn.init.orthogonal_(module.weight, gain=2.0)
    other = tmp_path_factory.mktemp("weights") / "other.safetensors"
    save_file(network.state_dict(), other)
    return f"{tiny.weights}+{other}"


@pytest.fixture(scope="module")
def run(tiny: TinyData, weights: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained(tiny, weights, tmp_path_factory.mktemp("runs") / "run")


def trained(tiny: TinyData, weights: str, out: Path, **changes: bool | int) -> Path:
    job = tiny.job(out, backbone="conv4+conv4", weights=weights, **changes)
    with Reporter(quiet=True) as reporter:
        assert train(job, reporter)
    return out


def manifest_of(run: Path) -> Manifest:
    return read_manifest(run / "bundle")


def test_labels_are_those_of_training(run: Path, tiny: TinyData, tmp_path: Path) -> None:
    assert manifest_of(run).preprocessing.shape == (64, 32, 3)
    with (run / "discovery.csv").open(newline="") as file:
        of_training = {row["path"]: row for row in csv.DictReader(file)}
    out = tmp_path / "labels.csv"
    words = [sys.executable, "-m", "scda.adapt", "label", run, tiny.target, "--out", out]
    subprocess.run([*map(str, words), "--workers", "1", "--quiet"], check=True)
    with out.open(newline="") as file:
        labelled = {row["path"]: row for row in csv.DictReader(file)}
    assert labelled.keys() == of_training.keys()
    for path, row in labelled.items():
        assert row["class_id"] == of_training[path]["cluster"]
        assert abs(float(row["confidence"]) - float(of_training[path]["confidence"])) <= WITHIN


def test_a_stopped_run_is_resumed_with_the_same_backbones(
    run: Path, tiny: TinyData, weights: str, tmp_path: Path
) -> None:
    out = trained(tiny, weights, tmp_path / "run")
    (out / "report.html").unlink()  # as if it had been stopped before its report
    again = trained(tiny, weights, out, resume=True)
    assert manifest_of(again).id == manifest_of(run).id
    (out / "report.html").unlink()
    with pytest.raises(UsageError, match="cannot resume: backbone was"):
        trained(tiny, "+".join(reversed(weights.split("+"))), out, resume=True)
