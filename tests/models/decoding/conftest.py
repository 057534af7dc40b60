from pathlib import Path

import pytest

from scda.models.predictor import Predictor, load_predictor


@pytest.fixture(scope="session")
def bundle(whole_bundle: Path) -> Path:
    """A bundle that no test may change."""
    return whole_bundle


@pytest.fixture(scope="session")
def predictor(bundle: Path) -> Predictor:
    return load_predictor(bundle, provider="cpu", threads=1)
