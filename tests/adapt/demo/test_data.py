"""The demo's pictures and backbone: honest, hidden classes, the same for the same seed."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file

from scda.adapt.demo import backbone, data
from scda.adapt.demo.backbone import train_backbone
from scda.adapt.demo.data import (
    draw_printed_letters,
    write_handwritten_digits,
    write_printed_digits,
)
from scda.adapt.demo.strokes import draw_strokes, glyph_strokes
from scda.models.networks.conv4 import Conv4


def _contents(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("demo") / "printed"
    write_printed_digits(folder, per_class=4, seed=0)
    return folder


@pytest.fixture(scope="module")
def handwritten(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("demo")
    write_handwritten_digits(folder / "target", folder / "labelled", seed=0)
    return folder


def test_printed_digits_have_one_folder_for_each_of_0_to_5(printed: Path) -> None:
    assert sorted(folder.name for folder in printed.iterdir()) == list("012345")
    assert all(len(list(folder.iterdir())) == 4 for folder in printed.iterdir())


def test_printed_digits_are_light_ink_on_dark_32_pixels_square(printed: Path) -> None:
    for path in printed.rglob("*.png"):
        pixels = np.asarray(Image.open(path))
        assert pixels.shape == (32, 32)
        assert pixels.max() > 200 > 127 > pixels.mean()


def test_printed_digits_repeat_with_the_seed_only(printed: Path, tmp_path: Path) -> None:
    write_printed_digits(tmp_path / "same", per_class=4, seed=0)
    write_printed_digits(tmp_path / "other", per_class=4, seed=1)
    assert _contents(tmp_path / "same") == _contents(printed)
    assert _contents(tmp_path / "other") != _contents(printed)


def test_printed_digits_refuse_no_pictures_and_a_used_folder(printed: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        write_printed_digits(tmp_path / "none", per_class=0, seed=0)
    with pytest.raises(FileExistsError, match="not empty"):
        write_printed_digits(printed, per_class=1, seed=0)


def test_letters_hold_no_digit_and_repeat_with_the_seed_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert not set(data.LETTERS) & set("0123456789")
    monkeypatch.setattr(data, "LETTERS", "Ag")
    drawn, same, other = (draw_printed_letters(per_class=1, seed=seed) for seed in (0, 0, 1))
    assert np.stack(drawn).shape == (2, 1, 32, 32)
    np.testing.assert_array_equal(np.stack(drawn), np.stack(same))
    assert not np.array_equal(np.stack(drawn), np.stack(other))


def test_a_third_of_the_ones_is_a_bare_stroke(tmp_path: Path) -> None:
    write_printed_digits(tmp_path / "printed", per_class=100, seed=0)
    images = [np.asarray(Image.open(path)) for path in (tmp_path / "printed" / "1").iterdir()]
    # A bare stroke has about the same profile in every row; a flag or a foot widens some.
    inked = np.stack([(image > 127).sum(axis=1) for image in images])
    bare = np.ptp(inked[:, 4:28], axis=1) <= 4
    assert 0.15 < bare.mean() < 0.6


def test_target_holds_every_handwritten_digit_flat(handwritten: Path) -> None:
    target = _contents(handwritten / "target")
    assert len(target) == 1797
    assert not [path for path in (handwritten / "target").iterdir() if path.is_dir()]


def test_labelled_copy_holds_the_targets_files_by_class(handwritten: Path) -> None:
    labelled = _contents(handwritten / "labelled")
    assert {name.split("/")[0] for name in labelled} == set("0123456789")
    renamed = {name.split("/")[1]: data for name, data in labelled.items()}
    assert renamed == _contents(handwritten / "target")


def test_target_names_hide_the_class(handwritten: Path) -> None:
    pairs = sorted(
        (path.name, int(path.parent.name)) for path in (handwritten / "labelled").rglob("*.png")
    )
    classes = np.array([digit for _, digit in pairs])
    # load_digits runs through 0, 1, 2 ... many times: sorted by name, no such run may remain.
    assert np.mean(classes[1:] == (classes[:-1] + 1) % 10) < 0.15
    assert abs(np.corrcoef(np.arange(len(classes)), classes)[0, 1]) < 0.1


def test_target_repeats_with_the_seed(handwritten: Path, tmp_path: Path) -> None:
    write_handwritten_digits(tmp_path / "target", tmp_path / "labelled", seed=0)
    assert _contents(tmp_path / "target") == _contents(handwritten / "target")


def test_centre_line_is_thin_centred_and_scaled() -> None:
    strokes = glyph_strokes("DejaVuSans.ttf", "1")
    assert np.abs(strokes).max() == pytest.approx(1.0)
    assert strokes.max(axis=0) == pytest.approx(-strokes.min(axis=0))
    assert 60 < len(strokes) < 200  # of about 1000 inked pixels


def test_drawn_strokes_fill_the_height() -> None:
    strokes = glyph_strokes("cmss10.ttf", "3")
    pixels = np.asarray(draw_strokes(strokes, np.random.default_rng(0)))
    assert pixels[:4].max() > 100
    assert pixels[-4:].max() > 100


def test_features_do_not_depend_on_the_rest_of_the_batch() -> None:
    network = Conv4().eval()
    images = torch.randn(5, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        together, alone = network(images), network(images[:1])
    assert together.shape == (5, network.num_features)
    torch.testing.assert_close(together[:1], alone)


@pytest.mark.usefixtures("_short_training")
def test_backbone_weights_load_and_repeat_with_the_seed(printed: Path, tmp_path: Path) -> None:
    steps: list[tuple[int, int]] = []
    for name in ("first", "second"):
        train_backbone(
            printed,
            tmp_path / name,
            letters=[],
            seed=3,
            on_step=lambda done, of: steps.append((done, of)),
        )
    assert steps == [(1, 2), (2, 2)] * 2
    assert (tmp_path / "first").read_bytes() == (tmp_path / "second").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["first", "second"]
    Conv4().load_state_dict(load_file(tmp_path / "first"))


def test_backbone_names_the_folder_that_holds_no_picture(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="0 holds no PNG"):
        train_backbone(
            tmp_path, tmp_path / "weights", letters=[], seed=0, on_step=lambda done, of: None
        )


@pytest.fixture
def _short_training(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backbone, "_STEPS", 2)
