"""Images larger than the limits, and limits larger or smaller than the defaults."""

import json
from pathlib import Path

import pytest

from scda.adapt.data.features import extract
from scda.adapt.data.image_files import Images
from scda.adapt.data.scan import read_headers
from scda.models.decoding.reading import IN_FULL
from scda.models.decoding.stored import read_stored
from scda.models.errors import GateError, ImageError, ScdaError, UsageError
from scda.models.images import read_file
from scda.models.limits import LIMITS, ImageLimits
from scda.models.networks.backbones import load_backbone
from tests.bundles import picture
from tests.conftest import Scda, TinyData
from tests.nasty import png


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Pictures of 400, 1,600 and 6,400 pixels."""
    folder = tmp_path / "photos"
    folder.mkdir()
    for side in (20, 40, 80):
        (folder / f"{side}.png").write_bytes(picture("red", size=(side, side), kind="PNG"))
    return folder


def labelled(scda: Scda, bundle: Path, photos: Path, *words: object) -> dict[str, str]:
    out = photos.parent / "rows.jsonl"
    done = scda("label", bundle, photos, "--out", out, *words)
    assert done.returncode in (0, 3), done.stderr
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    return {row["path"]: row["error_code"] or "ok" for row in rows}


@pytest.mark.parametrize("workers", [0, 2])
def test_label_reads_images_up_to_the_limits(
    scda: Scda, hostile_bundle: Path, photos: Path, workers: int
) -> None:
    words = ("--workers", workers, "--batch-size", 1)
    found = labelled(scda, hostile_bundle, photos, *words, "--max-pixels", 1600)
    assert found == {"20.png": "ok", "40.png": "ok", "80.png": "too_many_pixels"}
    size = (photos / "40.png").stat().st_size
    found = labelled(scda, hostile_bundle, photos, *words, "--max-bytes", size - 1)
    assert (found["20.png"], found["40.png"]) == ("ok", "too_many_bytes")


def test_an_image_above_the_default_can_be_read(
    scda: Scda, hostile_bundle: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "large"
    folder.mkdir()
    (folder / "scan.png").write_bytes(png(10_001, 5_000))  # no rows: it fails once it is decoded
    assert labelled(scda, hostile_bundle, folder) == {"scan.png": "too_many_pixels"}
    allowed = labelled(scda, hostile_bundle, folder, "--max-pixels", 60_000_000)
    assert allowed == {"scan.png": "cannot_decode"}


def test_a_resumed_labelling_keeps_its_limits(
    scda: Scda, hostile_bundle: Path, photos: Path, tmp_path: Path
) -> None:
    (photos / "text.png").write_bytes(b"no image")
    words = ("label", hostile_bundle, photos, "--out", tmp_path / "x.csv", "--batch-size", 1)
    assert scda(*words, "--max-errors", 0).returncode == 4
    done = scda(*words, "--resume", "--max-pixels", 1600)
    assert (done.returncode, "cannot resume: max_pixels was" in done.stderr) == (2, True)


@pytest.mark.parametrize("command", ["label", "train"])
@pytest.mark.parametrize(
    "words", [("--max-pixels", 0), ("--max-bytes", -1), ("--max-pixels", 10**30)]
)
def test_limits_out_of_range_are_one_line(
    scda: Scda, hostile_bundle: Path, photos: Path, command: str, words: tuple[str, int]
) -> None:
    out = photos.parent / "out.csv"
    of_train = ("--source", photos, "--target", photos, "--out", out)
    given = of_train if command == "train" else (hostile_bundle, photos, "--out", out)
    done = scda(command, *given, *words)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert not out.exists()


def test_training_reads_images_up_to_the_limits(
    photos: Path, tiny: TinyData, tmp_path: Path
) -> None:
    paths, limits = tuple(sorted(photos.iterdir())), ImageLimits(max_pixels=1600)
    assert [bad.path.name for bad in read_headers(paths, limits)[1]] == ["80.png"]
    backbone, cache = load_backbone("conv4", weights=tiny.weights), tmp_path / "cache"
    for _ in range(2):  # also what the cache knows from a training with larger limits
        found = extract(paths, backbone, cache_folder=cache, limits=limits)
        assert [(bad.path.name, bad.code) for bad in found.rejected] == [
            ("80.png", "too_many_pixels")
        ]
        assert len(extract(paths, backbone, cache_folder=cache).paths) == 3
    assert Images(photos, paths, limits=LIMITS).read(2, IN_FULL).size
    with pytest.raises(ScdaError, match="6,400 pixels; the limit is 1,600"):
        Images(photos, paths, limits=limits).read(2, IN_FULL)


def test_a_training_says_its_limits_to_what_comes_later() -> None:
    stated = ImageLimits.of_run({"limits": {"max_bytes": 5, "max_pixels": 7, "later": 1}})
    assert stated == ImageLimits(max_bytes=5, max_pixels=7)
    assert ImageLimits.of_run({"config": {}}) == LIMITS


@pytest.mark.parametrize("limits", [5, None, "x", {"max_bytes": None}, {"max_pixels": 2**40}])
def test_damaged_limits_of_a_training_are_one_line(limits: object) -> None:
    with pytest.raises(GateError, match="the limits of the training are damaged"):
        ImageLimits.of_run({"limits": limits})


def test_a_stored_image_has_the_limit_of_bytes(photos: Path) -> None:
    uri = f"file://{photos}/80.png"
    assert read_stored(uri) == (photos / "80.png").read_bytes()
    with pytest.raises(ImageError, match="the limit is 10"):
        read_stored(uri, max_bytes=10)


@pytest.mark.parametrize("name", ["max_bytes", "max_pixels"])
def test_limits_have_bounds(name: str, tmp_path: Path) -> None:
    for value in (0, -1, 2**40):
        with pytest.raises(UsageError, match=f"{name} is .*; expected 1 to"):
            ImageLimits(**{name: value})
    with pytest.raises(ImageError, match="cannot read"):
        read_file(tmp_path / "none", ImageLimits(**{name: 5}))
