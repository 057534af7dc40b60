import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from scda.adapt.cli.main import main
from scda.models.predictor import Predictor, load_predictor
from tests.bundles import make_bundle

Done = subprocess.CompletedProcess[str]
Scda = Callable[..., Done]


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


@pytest.fixture(scope="session")
def hostile_bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle that no test may change."""
    return make_bundle(tmp_path_factory.mktemp("bundles") / "bundle")


@pytest.fixture(scope="session")
def predictor(hostile_bundle: Path) -> Predictor:
    return load_predictor(hostile_bundle, provider="cpu", threads=1)
