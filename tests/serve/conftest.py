from pathlib import Path

import pytest

from scda.models.predictor import Predictor, load_predictor
from tests.browser import chromium
from tests.bundles import make_bundle

__all__ = ["chromium"]


@pytest.fixture(scope="session")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle that no test may change."""
    return make_bundle(tmp_path_factory.mktemp("bundles") / "bundle")


@pytest.fixture(scope="session")
def predictor(bundle: Path) -> Predictor:
    return load_predictor(bundle, provider="cpu", threads=1)
