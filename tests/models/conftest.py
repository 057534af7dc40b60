import shutil
from pathlib import Path

import pytest

from scda.models.predictor import Predictor, load_predictor
from tests.bundles import make_bundle


@pytest.fixture(scope="session")
def whole_bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle that no test may change."""
    return make_bundle(tmp_path_factory.mktemp("bundles") / "bundle")


@pytest.fixture
def bundle(whole_bundle: Path, tmp_path: Path) -> Path:
    """A bundle of one's own."""
    return shutil.copytree(whole_bundle, tmp_path / "bundle")


@pytest.fixture
def predictor(bundle: Path) -> Predictor:
    """A predictor of one's own."""
    return load_predictor(bundle, provider="cpu", threads=1)
