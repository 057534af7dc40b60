"""Tests that run on a GPU, and on the CPU to show that they run and that they can fail.

`make test-gpu` runs those of the mark `gpu`; the same bodies on the CPU are slow tests.
"""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from scda.adapt.pipeline.run import train
from scda.adapt.runtime.progress import Reporter
from tests.conftest import TinyData

CPU = pytest.param("cpu", marks=pytest.mark.slow)
CUDA = pytest.param("cuda", marks=pytest.mark.gpu)

Figure = Callable[[str, object], None]
_FIGURES = pytest.StashKey[list[str]]()


def require(device: str) -> None:
    """Fail without the device: a GPU test that is skipped would pass for a success."""
    if device == "cuda" and not torch.cuda.is_available():
        pytest.fail("torch finds no GPU; this test needs one", pytrace=False)


@pytest.fixture(params=[CPU, CUDA])
def device(request: pytest.FixtureRequest) -> str:
    require(request.param)
    return str(request.param)


@pytest.fixture
def figure(request: pytest.FixtureRequest) -> Figure:
    """Keep a line with what was measured; all are printed after the tests."""
    lines = request.config.stash.setdefault(_FIGURES, [])
    return lambda expected, found: lines.append(f"{request.node.name}: {found} ({expected})")


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    if lines := config.stash.get(_FIGURES, []):
        terminalreporter.section("figures")
        terminalreporter.write_line("\n".join(lines))


@pytest.fixture(scope="session")
def on_cpu(tiny: TinyData, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The runs on the CPU, in float32, that others are compared with; by what of F learns."""
    runs: dict[str, Path] = {}

    def run(finetune: str) -> Path:
        if finetune not in runs:
            out = tmp_path_factory.mktemp("on-cpu") / finetune
            trained(tiny, out, finetune=finetune, device="cpu")
            runs[finetune] = out
        return runs[finetune]

    return run


def trained(tiny: TinyData, out: Path, **changes: object) -> None:
    """Train on the made pictures, with a feature cache that is the run's own."""
    fields = {"cache": out.with_suffix(".cache"), "workers": 1, **changes}
    with Reporter(quiet=True) as reporter:
        train(tiny.job(out, **fields), reporter)
