from pathlib import Path

from benchmarks.label_memory import make_images, measured
from scda.models.folders import walk
from scda.models.images import read_file
from tests.bundles import make_bundle


def test_every_picture_is_measured(tmp_path: Path) -> None:
    bundle = make_bundle(tmp_path / "bundle")
    (tmp_path / "images").mkdir()
    make_images(tmp_path / "images", 210)
    paths = list(walk(tmp_path / "images"))
    assert len(paths) == 210
    assert len({path.read_bytes() for path in paths}) == 200
    assert read_file(paths[0]).size == (32, 32)
    figures = measured(bundle, tmp_path / "images")
    assert figures["rate"] > 0
    # No upper bounds: other tests have used this process, and processes of its own, before.
    assert figures["processor_ms"] > 0.1
    assert figures["mib"] > 50
