import os
import shutil
import sqlite3
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

from scda.adapt.data import features, known_files
from scda.adapt.data.feature_cache import cache_path
from scda.adapt.data.features import Extracted, extract
from scda.adapt.data.image_files import read_stamp
from scda.models.decoding.content import read_bytes
from scda.models.limits import ImageLimits
from scda.models.networks.backbones import Backbone
from tests.adapt.data.torch_session import TorchSession


@pytest.fixture
def images(tmp_path: Path) -> list[Path]:
    """Three pictures, each of one grey, in files of the same size."""
    (tmp_path / "images").mkdir()
    paths = [tmp_path / f"images/{number}.bmp" for number in range(3)]
    for number, path in enumerate(paths):
        Image.new("L", (40, 30), 60 * number).save(path)
    return paths


@pytest.fixture(autouse=True)
def read(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Every file whose bytes are read; files count as settled from the beginning."""
    seen: list[Path] = []

    def watched(path: Path, *, max_bytes: int) -> bytes:
        seen.append(path)
        return read_bytes(path, max_bytes=max_bytes)

    monkeypatch.setattr(features, "read_bytes", watched)
    monkeypatch.setattr(features, "_open", TorchSession)
    monkeypatch.setattr(known_files, "_SETTLED_SECONDS", 0.0)
    return seen


def run(
    paths: list[Path], backbone: Backbone, tmp_path: Path, limits: ImageLimits | None = None
) -> Extracted:
    return extract(
        paths, backbone, cache_folder=tmp_path / "cache", limits=limits or ImageLimits(), workers=1
    )


def test_files_that_have_not_changed_are_not_read_again(
    images: list[Path], backbone: Backbone, tmp_path: Path, read: list[Path]
) -> None:
    first = run(images, backbone, tmp_path)
    assert read == images
    again = run(images, backbone, tmp_path)
    assert read == images
    assert (again.paths, again.digests, again.stamps) == (first.paths, first.digests, first.stamps)
    assert again.stamps == list(map(read_stamp, images))
    np.testing.assert_array_equal(again.features, first.features)


def test_a_file_under_a_relative_path_is_the_same(
    images: list[Path],
    backbone: Backbone,
    tmp_path: Path,
    read: list[Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run(images, backbone, tmp_path)
    monkeypatch.chdir(tmp_path)
    run([Path("images/1.bmp")], backbone, tmp_path)
    assert read == images


def test_other_content_of_the_same_size_and_time_is_noticed(
    images: list[Path], backbone: Backbone, tmp_path: Path, read: list[Path]
) -> None:
    first = run(images, backbone, tmp_path)
    times = images[0].stat()
    images[0].write_bytes(images[1].read_bytes())
    os.utime(images[0], ns=(times.st_atime_ns, times.st_mtime_ns))
    again = run(images, backbone, tmp_path)
    assert read == [*images, images[0]]
    assert again.digests == [first.digests[1], *first.digests[1:]]


def test_a_file_that_has_just_changed_is_read_again(
    images: list[Path],
    backbone: Backbone,
    tmp_path: Path,
    read: list[Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(known_files, "_SETTLED_SECONDS", 3600.0)
    for _ in range(2):
        run(images, backbone, tmp_path)
    assert read == 2 * images


@pytest.mark.parametrize(
    ("limits", "code"),
    [
        (ImageLimits(max_pixels=1000), "too_many_pixels"),
        (ImageLimits(max_bytes=1000), "too_many_bytes"),
    ],
)
def test_narrower_limits_are_checked(
    images: list[Path], backbone: Backbone, tmp_path: Path, limits: ImageLimits, code: str
) -> None:
    run(images, backbone, tmp_path)
    found = run(images, backbone, tmp_path, limits)
    assert [bad.code for bad in found.rejected] == [code] * 3
    assert len(run(images, backbone, tmp_path).paths) == 3


def test_wider_limits_accept_what_narrower_ones_have_refused(
    images: list[Path], backbone: Backbone, tmp_path: Path
) -> None:
    assert not run(images, backbone, tmp_path, ImageLimits(max_pixels=1000)).paths
    assert run(images, backbone, tmp_path).paths == images


def test_many_files_are_written_as_they_come(
    images: list[Path],
    backbone: Backbone,
    tmp_path: Path,
    read: list[Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(known_files, "_TOGETHER", 2)
    for _ in range(2):
        run(images, backbone, tmp_path)
    assert read == images


def test_a_date_that_no_database_holds_is_no_obstacle(
    images: list[Path],
    backbone: Backbone,
    tmp_path: Path,
    read: list[Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    really = Path.stat

    def dated(path: Path, **options: bool) -> os.stat_result | SimpleNamespace:
        status = really(path, **options)
        names = ("st_mode", "st_size", "st_ctime_ns", "st_ino")
        if path != images[0]:
            return status
        return SimpleNamespace(st_mtime_ns=-(2**65), **{n: getattr(status, n) for n in names})

    monkeypatch.setattr(Path, "stat", dated)
    for _ in range(2):
        assert run(images, backbone, tmp_path).paths == images
    assert read == [*images, images[0]]


def test_a_file_that_cannot_be_used_is_never_known(
    images: list[Path], backbone: Backbone, tmp_path: Path, read: list[Path]
) -> None:
    images[1].write_bytes(b"no picture")
    for _ in range(2):
        assert [bad.path for bad in run(images, backbone, tmp_path).rejected] == [images[1]]
    assert read == [*images, images[1]]


def test_a_file_whose_features_are_lost_is_read_again(
    images: list[Path], backbone: Backbone, tmp_path: Path, read: list[Path]
) -> None:
    first = run(images, backbone, tmp_path)
    with sqlite3.connect(cache_path(tmp_path / "cache", backbone)) as database:
        database.execute("DELETE FROM features WHERE digest = ?", (first.digests[1],))
    database.close()
    again = run(images, backbone, tmp_path)
    assert read == [*images, images[1]]
    np.testing.assert_array_equal(again.features, first.features)


def test_a_cache_of_an_earlier_version_gets_the_table(
    images: list[Path], backbone: Backbone, tmp_path: Path, read: list[Path]
) -> None:
    run(images, backbone, tmp_path)
    with sqlite3.connect(cache_path(tmp_path / "cache", backbone)) as database:
        database.execute("DROP TABLE files")
    database.close()
    for _ in range(2):
        run(images, backbone, tmp_path)
    assert read == 2 * images


def test_a_name_that_is_not_unicode_is_known(
    images: list[Path], backbone: Backbone, tmp_path: Path, read: list[Path]
) -> None:
    odd = tmp_path / os.fsdecode(b"caf\xe9.bmp")
    shutil.copy(images[0], odd)
    for _ in range(2):
        assert run([odd], backbone, tmp_path).paths == [odd]
    assert read == [odd]
