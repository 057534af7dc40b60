from pathlib import Path

import pytest

from scda.models.predictor import Predictor, load_predictor
from tests.bundles import make_bundle


@pytest.fixture(scope="session")
def hostile_bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle that no test may change."""
    return make_bundle(tmp_path_factory.mktemp("bundles") / "bundle")


@pytest.fixture(scope="session")
def predictor(hostile_bundle: Path) -> Predictor:
    return load_predictor(hostile_bundle, provider="cpu", threads=1)
