"""The figures in a bundle are those that a server shows for the images of the target."""

from pathlib import Path

import numpy as np
import pytest

from scda.models.images import read_file
from scda.models.predictor import load_predictor
from tests.conftest import TinyData


def test_the_bundle_knows_what_a_server_shows_for_its_own_target(
    tiny: TinyData, tiny_run: Path
) -> None:
    predictor = load_predictor(tiny_run / "bundle", provider="cpu", threads=1)
    figures = predictor.manifest.on_target
    assert figures
    paths = sorted(tiny.target.iterdir())
    found = predictor.predict([predictor.prepare(read_file(path)) for path in paths])
    assert figures.images == len(paths) == sum(info.size for info in predictor.manifest.classes)
    # At the border of a class, the rounding of its radius may decide about an image.
    outliers = sum(prediction.outlier for prediction in found)
    assert outliers / len(found) == pytest.approx(figures.outlier_share, abs=2 / len(found))
    confidence = np.mean([prediction.confidence for prediction in found])
    assert confidence == pytest.approx(figures.mean_confidence, abs=1e-3)
    for info in predictor.manifest.classes:
        count = sum(prediction.class_id == info.class_id for prediction in found)
        assert count == pytest.approx(info.size, abs=1)
