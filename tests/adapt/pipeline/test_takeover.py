"""`--after`: a new training takes over the classes of an earlier one, through the real pipeline."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageDraw

import scda
from scda.adapt.data.dataset import plan
from scda.adapt.data.job import Job, check_job
from scda.adapt.pipeline.run import train
from scda.adapt.pipeline.takeover import planned_takeover
from scda.adapt.runs.tables import read_discovery
from scda.adapt.runtime.progress import Reporter
from scda.models.bundle import Manifest, read_manifest
from scda.models.errors import DataError, UsageError
from scda.models.names import read_names
from scda.models.naming import change_names
from scda.models.previous import Became
from tests.conftest import KNOWN, Scda, TinyData, picture

pytestmark = pytest.mark.usefixtures("no_figures")
EACH = 10  # pictures of each class
# What each class that the source lacks draws; two new classes do not tell the two bars apart.
NEW: dict[str, Callable[[ImageDraw.ImageDraw, int], None]] = {
    "slab": lambda draw, x: draw.rectangle((0, 0, 48, 30), fill=(245, 245, 245)),
    "frame": lambda draw, x: draw.rectangle((2, 2, 45, 45), outline=(230, 40, 200), width=9),
    "thin bar": lambda draw, x: draw.line((x, 0, x, 48), fill=(240, 200, 40), width=5),
    "thick bar": lambda draw, x: draw.line((x, 0, x, 48), fill=(240, 200, 40), width=13),
}


def fill(folder: Path, *names: str) -> Path:
    """Write the pictures of classes, the same ones into every folder."""
    for name in names:
        generator = np.random.default_rng([*name.encode()])
        for number in range(EACH):
            if name in KNOWN:
                image = picture(name, generator, light=0.8)
            else:
                noise = generator.normal(90, 12, (48, 48, 3)).clip(0, 255)
                image = Image.fromarray(noise.astype(np.uint8))
                NEW[name](ImageDraw.Draw(image), int(generator.integers(20, 28)))
            path = folder / name / f"{number}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            image.save(path)
    return folder


def run(job: Job) -> Manifest:
    with Reporter(quiet=True) as reporter:
        trained = train(job, reporter)
    assert trained
    return trained.manifest


def classes(folder: Path) -> dict[str, str]:
    """Return name → id of the class that most of its pictures have in a run."""
    found: dict[str, list[str]] = {}
    for row in read_discovery(folder / "discovery.csv"):
        found.setdefault(row.path.partition("/")[0], []).append(row.cluster)
    return {name: max(set(ids), key=ids.count) for name, ids in found.items()}


Make = Callable[..., Job]


@pytest.fixture(scope="module")
def make(tiny: TinyData) -> Make:
    """A job on the made source, short and without a choice of statistics."""

    def job(out: Path, **changes: Any) -> Job:
        short = {"pretrain_steps": 40, "round_steps": 20, "rounds": 1, "neighbours": False}
        return tiny.job(out, **{"backbone_statistics": "pretrained", **short, **changes})

    return job


@pytest.fixture(scope="module")
def old(make: Make, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose two new classes are slabs and bars; people have named the bars."""
    root = tmp_path_factory.mktemp("old")
    target = fill(root / "target", *KNOWN, "slab", "thin bar", "thick bar")
    run(make(root / "run", target=target, k=2))
    bars = classes(root / "run")["thin bar"]
    change_names(root / "run" / "bundle", lambda naming, names: naming.name(names, bars, "bar"))
    return root / "run"


@pytest.fixture(scope="module")
def new(make: Make, old: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run after that one: the slabs are gone, frames are new, and the bars are two classes."""
    root = tmp_path_factory.mktemp("new")
    target = fill(root / "target", *KNOWN, "frame", "thin bar", "thick bar")
    run(make(root / "run", target=target, k=3, after=str(old)))
    return root / "run"


def test_a_vanished_a_new_and_a_split_class_are_told_as_such(old: Path, new: Path) -> None:
    before, now = classes(old), classes(new)
    assert before["thin bar"] == before["thick bar"] != before["slab"]
    manifest = read_manifest(new / "bundle")
    previous = manifest.previous
    assert previous
    assert previous.id == read_manifest(old / "bundle").id
    assert previous.in_common == 5 * EACH
    fates = {fate.class_id: fate for fate in previous.classes}
    assert {fates[f"known-{i:03d}"].became for i in range(3)} == {Became.KEPT}
    assert fates[before["slab"]].became is Became.VANISHED
    bar = fates[before["thin bar"]]
    assert (bar.became, bar.label) == (Became.SPLIT, "bar")
    assert set(bar.into) == {now["thin bar"], now["thick bar"]}
    origins = {one.class_id: one.of for one in previous.new}
    (other,) = set(bar.into) - {bar.class_id}
    assert origins == {now["frame"]: (), other: (bar.class_id,)}
    assert previous.retired == {before["slab"]: before["slab"]}
    # The larger part keeps id and name; no new class has an id that another one ever had.
    assert bar.class_id in manifest.class_ids
    assert read_names(new / "bundle", manifest).labels == {bar.class_id: "bar"}
    assert {now["frame"], other} == {"discovered-002", "discovered-003"}
    assert manifest.calibration
    assert set(manifest.calibration.temperature) == set(manifest.class_ids)


def test_what_changed_is_in_the_report_and_in_inspect(old: Path, new: Path, scda: Scda) -> None:
    page = (new / "report.html").read_text("utf-8")
    assert "What changed since" in page
    assert "(bar)" in page
    assert "What changed since" not in (old / "report.html").read_text("utf-8")
    shown = scda("inspect", new)
    assert shown.returncode == 0
    assert "(bar): split: many of its images are in discovered-00" in shown.stdout
    assert f"{classes(old)['slab']}: vanished" in shown.stdout


def test_only_the_same_earlier_model_continues_a_run(
    make: Make, old: Path, new: Path, tmp_path: Path
) -> None:
    target = new.parent / "target"
    moved = shutil.copytree(old / "bundle", tmp_path / "moved")
    again = {"target": target, "k": 3, "resume": True}
    # The bundle alone has its images in no table; the same model is the same wherever it lies.
    assert run(make(new, **again, after=str(moved))).id == read_manifest(new / "bundle").id
    other = shutil.copytree(new / "bundle", tmp_path / "other")
    for after in (str(other), ""):
        with pytest.raises(UsageError, match="cannot resume: earlier model was"):
            run(make(new, **again, after=after))


def test_the_plan_says_what_is_taken_over(make: Make, old: Path, tmp_path: Path) -> None:
    job = make(tmp_path / "run", target=old.parent / "target", after=str(old))
    told = plan(job, lambda *found: planned_takeover(job.config, *found))["after"]
    assert "3 known and 2 discovered classes, 1 of them with names; 60 of 60 target" in told


def test_a_model_whose_classes_cannot_be_found_again_is_refused(
    make: Make, old: Path, tmp_path: Path
) -> None:
    target = fill(tmp_path / "target", "frame")
    other = make(tmp_path / "run", target=target, after=str(old), image_size=24)
    with pytest.raises(DataError, match="its discovered classes cannot be found again"):
        plan(other, lambda *found: planned_takeover(other.config, *found))
    same = make(tmp_path / "run", target=target, after=str(old))  # by its centroids
    assert plan(same, lambda *found: planned_takeover(same.config, *found))["after"]


def test_a_run_does_not_take_the_place_of_its_earlier_model(make: Make, old: Path) -> None:
    for place in (old, old.parent):
        with pytest.raises(UsageError, match="holds the earlier model"):
            check_job(make(place, after=str(old), overwrite=True))


def test_after_is_an_option_of_train_in_python_too(tiny: TinyData, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such folder; expected a bundle or a run"):
        scda.train(tiny.source, tiny.target, tmp_path / "run", after=tmp_path / "missing")
