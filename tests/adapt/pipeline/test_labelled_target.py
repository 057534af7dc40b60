"""Train with an image of the target that a person has put into the source."""

import shutil
from pathlib import Path

import pytest

from scda.adapt.pipeline.run import train
from scda.adapt.runs.folder import RunFolder
from scda.adapt.runs.tables import read_discovery
from scda.adapt.runtime.progress import Reporter
from tests.conftest import HIDDEN, KNOWN, TinyData


def test_one_labelled_image_of_a_new_class_is_enough(
    tiny: TinyData, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = min(HIDDEN)
    images = sorted(path.name for path in (tiny.labelled / name).iterdir())
    source = tmp_path / "source"
    shutil.copytree(tiny.source, source)
    (source / name).mkdir()
    shutil.copy(tiny.target / images[0], source / name / "picked.png")
    with Reporter() as reporter:
        train(tiny.job(tmp_path / "run", source=source, rounds=1), reporter)
    told = capsys.readouterr().err
    assert f"1 target images are in the source, too: {tiny.target / images[0]}; training" in told
    assert f"target images alone: {name}; they are discovered" in told
    rows = read_discovery(RunFolder(tmp_path / "run").discovery)
    known = f"known-{sorted([*KNOWN, name]).index(name):03d}"
    of_class = [row.cluster for row in rows if Path(row.path).name in images]
    assert of_class.count(known) > 0.8 * len(images)
