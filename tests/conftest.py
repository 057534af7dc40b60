import dataclasses
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, settings
from PIL import Image, ImageDraw
from safetensors.torch import save_file

from scda.adapt.cli.main import main
from scda.adapt.config import TrainConfig
from scda.adapt.data.job import Job
from scda.adapt.pipeline.run import train
from scda.adapt.runtime.progress import Reporter
from scda.models.networks.conv4 import Conv4
from tests import exports

# On a machine that other programs keep busy an example, or drawing it, may take any time.
settings.register_profile("scda", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("scda")

KNOWN = {"blue_disc": (60, 80, 220), "green_bar": (60, 190, 80), "red_square": (220, 60, 60)}
HIDDEN = {"white_cross": (240, 240, 240), "yellow_ring": (230, 210, 40)}

# These files begin first, so that at the end no worker is left alone with one of them.
LONG = (
    "adapt/pipeline/test_run.py",
    "serve/review/test_review_page.py",
    "adapt/pipeline/test_kill.py",
    "serve/labelling/ray/test_engine.py",
    "adapt/runtime/test_distributed.py",
    "adapt/cli/test_main.py",
    "adapt/training/test_algorithm.py",
    "serve/review/test_application.py",
    "adapt/training/test_finetune.py",
    "adapt/pipeline/test_takeover.py",
    "serve/workers/test_supervisor.py",
    "adapt/pipeline/test_several_backbones.py",
    "models/decoding/test_decoding.py",
    "serve/http/test_under_load.py",
    "adapt/pipeline/test_statistics.py",
    "serve/http/test_page.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the tests of long files first; `make test` keeps this order."""
    paths = [Path(__file__).parent / name for name in LONG]
    assert all(path.is_file() for path in paths)
    place = {path: number for number, path in enumerate(paths)}
    items.sort(key=lambda item: place.get(item.path, len(place)))


Done = subprocess.CompletedProcess[str]
Scda = Callable[..., Done]


@dataclass(frozen=True)
class TinyData:
    """Made pictures: three known classes, two hidden ones in the target alone."""

    root: Path

    @property
    def source(self) -> Path:
        return self.root / "source"

    @property
    def target(self) -> Path:
        return self.root / "target"

    @property
    def labelled(self) -> Path:
        return self.root / "labelled"

    @property
    def weights(self) -> Path:
        return self.root / "conv4.safetensors"

    @property
    def cache(self) -> Path:
        return self.root / "cache"

    def job(self, out: Path, **changes: Any) -> Job:
        """A job that ends in seconds; changes are of the job or of its config."""
        of_job = {f.name for f in dataclasses.fields(Job)}
        config: dict[str, Any] = {"backbone": "conv4", "weights": str(self.weights), "k_max": 6}
        config |= {"novel": "yes", "pretrain_steps": 60, "round_steps": 40, "rounds": 2}
        config |= {"batch_size": 16, **{n: v for n, v in changes.items() if n not in of_job}}
        fields: dict[str, Any] = {"source": self.source, "target": self.target}
        fields |= {"cache": self.cache, **{n: v for n, v in changes.items() if n in of_job}}
        return Job(out=out, config=TrainConfig(**config), **fields)


def picture(name: str, generator: np.random.Generator, *, light: float) -> Image.Image:
    """One picture of a class, 48 x 48: its shape in its colour on grey noise."""
    noise = generator.normal(110 * light, 12, (48, 48, 3)).clip(0, 255).astype(np.uint8)
    image = Image.fromarray(noise)
    draw = ImageDraw.Draw(image)
    red, green, blue = {**KNOWN, **HIDDEN}[name]
    colour = (int(light * red), int(light * green), int(light * blue))
    x, y = (int(value) for value in generator.integers(18, 30, 2))
    r = int(generator.integers(9, 14))
    if name == "blue_disc":
        draw.ellipse((x - r, y - r, x + r, y + r), fill=colour)
    elif name == "green_bar":
        draw.rectangle((x - r, y - 4, x + r, y + 4), fill=colour)
    elif name == "red_square":
        draw.rectangle((x - r, y - r, x + r, y + r), fill=colour)
    elif name == "white_cross":
        draw.line((x - r, y - r, x + r, y + r), fill=colour, width=5)
        draw.line((x - r, y + r, x + r, y - r), fill=colour, width=5)
    else:
        draw.ellipse((x - r, y - r, x + r, y + r), outline=colour, width=4)
    return image


@pytest.fixture(autouse=True)
def _logging_kept() -> Iterator[None]:
    """Restore the loggers after a test that runs a command which configures them."""
    loggers = [logging.getLogger(name) for name in ("", "scda", "uvicorn")]
    kept = [(log.level, log.propagate, list(log.handlers)) for log in loggers]
    yield
    for log, (level, propagate, handlers) in zip(loggers, kept, strict=True):
        log.setLevel(level)
        log.propagate, log.handlers = propagate, handlers


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> TinyData:
    data, generator = TinyData(tmp_path_factory.mktemp("tiny")), np.random.default_rng(0)
    for name in KNOWN:
        for number in range(20):
            path = data.source / name / f"{number}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            picture(name, generator, light=1.0).save(path)
    for name in (*KNOWN, *HIDDEN):
        for _ in range(20):
            image = picture(name, generator, light=0.8)
            # Names that sort in another order than the classes, and do not tell them.
            key = f"{generator.integers(10**9):09d}.png"
            for path in (data.target / key, data.labelled / name / key):
                path.parent.mkdir(parents=True, exist_ok=True)
                image.save(path)
    torch.manual_seed(0)
    network = Conv4()
    for module in network.modules():  # random filters, scaled so that pictures differ in features
        if isinstance(module, torch.nn.Conv2d):
            torch.nn.init.orthogonal_(module.weight, gain=2.0)
    save_file(network.state_dict(), data.weights)
    return data


@pytest.fixture(scope="session")
def tiny_run(tiny: TinyData, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run on the made pictures; read it, do not change it."""
    out = tmp_path_factory.mktemp("runs") / "tiny"
    with Reporter(quiet=True) as reporter:
        train(tiny.job(out), reporter)
    return out


@pytest.fixture(scope="session")
def kept_exports(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of `exports.remembered`, one for all processes of pytest-xdist."""
    own = tmp_path_factory.getbasetemp()
    folder = (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "exports"
    folder.mkdir(exist_ok=True)
    return folder


@pytest.fixture(scope="session", autouse=True)
def _exports_are_remembered(kept_exports: Path) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        exports.read_operators_once(patch)
        patch.setattr(torch.onnx, "export", exports.remembered(exports.in_earnest, kept_exports))
        yield


@pytest.fixture(scope="module")
def no_figures(tiny_run: Path) -> Iterator[None]:
    """Reports without figures, which take a second to draw; that of `tiny_run` has them."""
    names = ("curve", "counts", "unknown", "losses", "entropies", "reliability")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("scda.adapt.report.report._figures", lambda *_: dict.fromkeys(names, ""))
        yield


@pytest.fixture
def exporter(monkeypatch: pytest.MonkeyPatch) -> None:
    """Export in earnest, even what has been exported before."""
    monkeypatch.setattr(torch.onnx, "export", exports.in_earnest)


@pytest.fixture(scope="session")
def distributions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the built sdist and wheel."""
    root, out = Path(__file__).parent.parent, tmp_path_factory.mktemp("dist")
    # sdist first, then the wheel from it: an old build/ folder cannot leak into the wheel.
    build = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out), str(root)]
    subprocess.run(build, check=True, capture_output=True)
    return out


@pytest.fixture
def scda(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Scda:
    """The command line in this process: starting a new one costs seconds of imports."""

    def call(*arguments: object) -> Done:
        monkeypatch.setattr(sys, "argv", ["scda-adapt", *map(str, arguments)])
        before = signal.getsignal(signal.SIGTERM)
        try:
            with pytest.raises(SystemExit) as stopped:
                main()
        finally:
            signal.signal(signal.SIGTERM, before)
        said = capfd.readouterr()
        assert isinstance(stopped.value.code, int)
        return subprocess.CompletedProcess(sys.argv, stopped.value.code, said.out, said.err)

    return call
