"""Every reader decodes an image that may take much time or memory in a process with limits."""

import csv
import hashlib
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image

from scda.adapt.data import features
from scda.adapt.data.domain_statistics import domain_statistics
from scda.adapt.data.features import extract
from scda.adapt.data.image_files import Images
from scda.adapt.data.scan import read_headers
from scda.adapt.evaluation.evaluate import score
from scda.adapt.report.thumbnails import make_thumbnails
from scda.models.decoding.limits import ProcessLimits
from scda.models.decoding.reading import IN_FULL
from scda.models.errors import ImageError
from scda.models.limits import ImageLimits
from scda.models.networks.backbones import Backbone, load_backbone
from scda.models.predictor import Predictor
from scda.serve.files.target_images import TargetImage, TargetImages
from scda.serve.model import Model
from tests.adapt.data.torch_session import TorchSession
from tests.conftest import Scda, TinyData
from tests.hostile_images import hostile_images
from tests.memory_limit import limited_memory
from tests.nasty import encode, four, png

FAULTS = Path(__file__).parents[1] / "fixtures" / "faults"
MEBIBYTES = 40  # for the pixels of one image


@pytest.fixture(scope="module")
def backbone(tiny: TinyData) -> Backbone:
    return load_backbone("conv4", weights=tiny.weights)


@pytest.fixture(autouse=True)
def torch_session(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(features, "_open", lambda backbone, *_: TorchSession(backbone))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two class folders with the same TIFF."""
    for name in ("a", "b"):
        (tmp_path / "images" / name).mkdir(parents=True)
        (tmp_path / "images" / name / "0.tiff").write_bytes(encode(four(), "TIFF"))
    return tmp_path / "images"


@pytest.fixture
def not_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no TIFF be opened in this process."""

    def opened(*_: object) -> None:
        raise AssertionError("a TIFF was opened in the process of the caller")

    Image.init()
    monkeypatch.setitem(Image.OPEN, "TIFF", (opened, Image.OPEN["TIFF"][1]))


def extraction(folder: Path, backbone: Backbone, _: Predictor) -> None:
    for _repeat in range(2):  # the second time from the cache
        found = extract([folder / "a/0.tiff"], backbone, cache_folder=folder.parent / "cache")
        assert len(found.features) == 1


def statistics(folder: Path, backbone: Backbone, _: Predictor) -> None:
    paths = [folder / "a/0.tiff"] * 8
    assert domain_statistics(paths, backbone, cache_folder=folder.parent / "cache")


def headers(folder: Path, *_: object) -> None:
    assert read_headers([folder / "a/0.tiff"])[1] == []


def rows(folder: Path, *_: object) -> None:
    found = Images(folder, [folder / "a/0.tiff"]).read(0, IN_FULL)
    assert found.tobytes() == four().tobytes()


def report(folder: Path, *_: object) -> None:
    made = make_thumbnails(folder, ["a/0.tiff"], ["b/0.tiff"], on_progress=lambda *_: None)
    assert made.unreadable == 0


def review(folder: Path, *_: object) -> None:
    assert TargetImages([TargetImage("a/0.tiff", "known-000", 1.0)], folder).thumbnail(0)


def evaluation(folder: Path, _: Backbone, predictor: Predictor) -> None:
    assert len(score(predictor, folder, on_progress=lambda *_: None).true) == 2


def door(folder: Path, _: Backbone, predictor: Predictor) -> None:
    path = folder / "a/0.tiff"
    assert Model(predictor).predict(path) == Model(predictor).predict(path.read_bytes())


@pytest.mark.usefixtures("not_here")
@pytest.mark.parametrize(
    "reader", [extraction, statistics, headers, rows, report, review, evaluation, door]
)
def test_no_reader_opens_a_costly_image_itself(
    reader: Callable[[Path, Backbone, Predictor], None],
    folder: Path,
    backbone: Backbone,
    predictor: Predictor,
) -> None:
    reader(folder, backbone, predictor)


def test_an_image_that_takes_too_much_memory_is_rejected_by_a_training(
    backbone: Backbone, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = ImageLimits(max_pixels=50_000_001)  # whose processes no other test has started
    small = ProcessLimits(mebibytes=MEBIBYTES, seconds=10, patience=60)
    monkeypatch.setattr(ProcessLimits, "for_images", lambda limits: small)
    files = {
        "0.png": encode(four(), "PNG"),
        "black.jp2": (FAULTS / "jp2-black-50mp.jp2").read_bytes(),
        "bomb.jp2": (FAULTS / "jp2-bomb-50mp.jp2").read_bytes(),
        "large.png": png(6000, 6000, rows=bytes(1000)),
    }
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    paths = sorted(tmp_path.iterdir())
    found = extract(paths, backbone, cache_folder=tmp_path / "cache", limits=limits)
    assert found.paths == [tmp_path / "0.png"]
    told = {bad.path.name: (bad.code, bad.message) for bad in found.rejected}
    assert told.keys() == files.keys() - {"0.png"}
    assert {code for code, _ in told.values()} == {"cannot_decode"}
    assert told["large.png"][1] == f"decoding needs more than {MEBIBYTES} MiB of memory"
    digest = hashlib.sha256(files["large.png"]).hexdigest()
    with pytest.raises(ImageError, match="MiB of memory"):
        Images(tmp_path, [tmp_path / "large.png"], [digest], limits=limits).read(0, IN_FULL)


@pytest.mark.slow
def test_training_and_report_survive_images_made_to_harm(
    tiny: TinyData, scda: Scda, tmp_path: Path
) -> None:
    files = hostile_images()
    target, run = tmp_path / "target", tmp_path / "run"
    shutil.copytree(tiny.target, target)
    for name, data in files.items():
        (target / name).write_bytes(data)
    options = ["--backbone", "conv4", "--weights", tiny.weights, "--cache", tmp_path / "cache"]
    words = ["train", "--source", tiny.source, "--target", target, "--out", run, *options]
    words += ["--rounds", "1", "--k-max", "6"]
    with limited_memory(2048) as group:
        done = subprocess.run(
            group.joined([sys.executable, "-m", "scda.adapt", *map(str, words)]),
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode in (0, 3), done.stderr
        print(f"\n{group.most()} MiB")
        assert group.killed() == 0
    with (run / "rejected.csv").open(newline="") as file:
        codes = {Path(row["path"]).name: row["error_code"] for row in csv.DictReader(file)}
    assert codes["jp2-bomb-50mp.jp2"] == "cannot_decode"
    assert scda("report", str(run)).returncode == 0
