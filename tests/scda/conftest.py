from pathlib import Path

import pytest

from tests.bundles import make_bundle


@pytest.fixture(scope="session")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle that no test may change."""
    return make_bundle(tmp_path_factory.mktemp("bundles") / "bundle")
