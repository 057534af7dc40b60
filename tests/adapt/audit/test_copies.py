import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageOps

from scda.adapt.audit.copies import SAME, copy_groups, members
from scda.adapt.audit.signatures import read_signatures, resemblance
from scda.models.index import Features, Ids


def picture(seed: int) -> Image.Image:
    cells = np.random.default_rng(seed).integers(0, 255, (6, 6, 3), np.uint8)
    return Image.fromarray(cells).resize((120, 120), Image.Resampling.BICUBIC)


@pytest.fixture(scope="module")
def signatures(tmp_path_factory: pytest.TempPathFactory) -> Features:
    folder = tmp_path_factory.mktemp("pictures")
    one, other = picture(1), picture(2)
    made = [one, one.resize((60, 60)), ImageOps.mirror(one), other, Image.new("RGB", (9, 9))]
    paths = [folder / f"{number}.jpg" for number in range(len(made))]
    for path, image in zip(paths, made, strict=True):
        image.save(path, "JPEG", quality=70)
    return read_signatures([*paths, Path(folder / "lost.jpg")])


@pytest.mark.parametrize(("row", "same"), [(1, True), (2, True), (3, False), (4, False)])
def test_saved_anew_smaller_or_mirrored_is_the_same(
    signatures: Features, row: int, same: bool
) -> None:
    (alike,) = resemblance(signatures, np.array([0]), np.array([row]))
    assert (alike >= SAME) is np.bool_(same)


def test_lost_and_plain_images_resemble_nothing(signatures: Features) -> None:
    assert not resemblance(signatures, np.array([4, 5]), np.array([4, 5])).any()


def never(first: Ids, second: Ids) -> Features:
    return np.zeros(len(first), np.float32)


def test_equal_files_are_one_group_whatever_they_look_like() -> None:
    groups = copy_groups(np.eye(4, dtype=np.float32), ["a", "b", "a", "c"], never)
    assert [rows.tolist() for rows in members(groups)] == [[0, 2]]


def test_copies_of_copies_are_one_group() -> None:
    features = np.array([[1, 0], [1, 0.1], [1, 0.2], [0, 1]], np.float32)

    def chain(first: Ids, second: Ids) -> Features:
        return np.asarray(np.abs(first - second) == 1, np.float32)

    groups = copy_groups(features, list("abcd"), chain)
    assert [rows.tolist() for rows in members(groups)] == [[0, 1, 2]]


def test_a_single_image_is_alone() -> None:
    assert not members(copy_groups(np.ones((1, 3), np.float32), ["a"], never))


def test_jpeg_of_other_quality_is_the_same_picture(tmp_path: Path) -> None:
    for quality in (30, 95):
        file = io.BytesIO()
        picture(7).save(file, "JPEG", quality=quality)
        (tmp_path / f"{quality}.jpg").write_bytes(file.getvalue())
    found = read_signatures(sorted(tmp_path.iterdir()))
    assert resemblance(found, np.array([0]), np.array([1]))[0] >= SAME
