"""The graph of a bundle answers with the calibrated confidence that its manifest tells."""

from pathlib import Path

import numpy as np
import pytest

from scda.models.images import read_file
from scda.models.predictor import load_predictor
from tests.conftest import TinyData


def test_the_confidence_of_a_discovered_class_is_what_is_expected(
    tiny: TinyData, tiny_run: Path
) -> None:
    predictor = load_predictor(tiny_run / "bundle", provider="cpu", threads=1)
    manifest = predictor.manifest
    assert manifest.calibration
    assert list(manifest.calibration.temperature) == manifest.class_ids
    known = [manifest.calibration.temperature[i] for i in manifest.class_ids[: manifest.num_known]]
    assert len(set(known)) == 1 <= known[0]
    paths = sorted(tiny.target.iterdir())
    found = predictor.predict([predictor.prepare(read_file(path)) for path in paths])
    discovered = [info for info in manifest.classes if info.kind == "discovered" and info.size]
    assert set(manifest.calibration.expected) == {info.class_id for info in discovered}
    for info in discovered:
        own = [one.confidence for one in found if one.class_id == info.class_id]
        assert np.mean(own) == pytest.approx(info.mean_confidence, abs=0.02)
        # Images at the border to a class of another temperature differ from those inside.
        expected = manifest.calibration.expected[info.class_id]
        assert info.mean_confidence < max(expected, 1 / len(manifest.classes)) + 0.2
