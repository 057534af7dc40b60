import re
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Generator, Tensor
from torchvision.transforms import v2

from scda.adapt.data.image_files import Images
from scda.adapt.training.image_batches import AugmentedBatches, preprocessed_batches, random_view
from scda.models.errors import DataError
from scda.models.preprocess import Preprocessing

GREY = (127.0, 127.0, 127.0)
PREPROCESSING = Preprocessing(resize_px=16, crop_px=12, mean=GREY, std=GREY)
STEPS = [(torch.tensor([0, 1]), torch.tensor([2]), torch.tensor([0, 1, 2])) for _ in range(3)]


def folder(root: Path, shade: int) -> Images:
    root.mkdir()
    paths = [root / f"{number}.png" for number in range(3)]
    for number, path in enumerate(paths):
        ramp = np.tile(np.arange(40, dtype=np.uint8), (30, 1)) + shade + 20 * number
        Image.fromarray(ramp).convert("RGB").save(path)
    return Images(root, paths)


@pytest.fixture
def domains(tmp_path: Path) -> tuple[Images, Images]:
    return folder(tmp_path / "source", 0), folder(tmp_path / "target", 100)


def seen(domains: tuple[Images, Images], *, workers: int = 0, seed: int = 0) -> list[list[Tensor]]:
    augmented = AugmentedBatches(*domains, PREPROCESSING, workers=workers)
    return [list(step) for step in augmented.batches(STEPS, Generator().manual_seed(seed))]


def test_a_view_is_a_random_square_and_sometimes_mirrored() -> None:
    ramp = np.tile(np.arange(0, 160, 4, dtype=np.uint8), (20, 1))
    image = Image.fromarray(ramp).convert("RGB")
    torch.manual_seed(0)
    views = [random_view(image, PREPROCESSING) for _ in range(30)]
    assert {(tuple(view.shape), view.dtype) for view in views} == {((12, 12, 3), torch.uint8)}
    left, right = zip(*(view[6, [0, -1], 0].int().tolist() for view in views), strict=True)
    mirrored = [a > b for a, b in zip(left, right, strict=True)]
    assert 5 < sum(mirrored) < 25
    assert len(set(left)) > 5  # many places
    # 12/16 of the shorter side, 15 of 20 pixels, in steps of 4: a view spans 4 x 14 or so.
    spans = [abs(a - b) for a, b in zip(left, right, strict=True)]
    assert 48 <= min(spans) <= max(spans) <= 60


@pytest.mark.parametrize("size", [(40, 30), (30, 40), (16, 16), (12, 12), (3, 1)])
def test_a_view_is_the_one_torchvision_makes(size: tuple[int, int]) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (*reversed(size), 3), dtype=np.uint8)
    image, side = Image.fromarray(pixels), max(1, round(min(size) * 12 / 16))
    resize = v2.Resize([12, 12], v2.InterpolationMode.BICUBIC)
    transform = v2.Compose([v2.RandomCrop(side), resize, v2.RandomHorizontalFlip()])
    for seed in range(5):
        torch.manual_seed(seed)
        expected = torch.from_numpy(np.array(transform(image)))
        torch.manual_seed(seed)
        assert torch.equal(random_view(image, PREPROCESSING), expected)


def test_a_view_of_an_extreme_shape_costs_no_more() -> None:
    long = Image.new("RGB", (50_000, 2), "red")
    assert random_view(long, PREPROCESSING).unique(dim=0).shape[0] == 1


def test_a_step_has_its_rows_whatever_the_number_of_processes(
    domains: tuple[Images, Images],
) -> None:
    one, two = seen(domains), seen(domains, workers=1)
    assert [[len(part) for part in step] for step in one] == [[2, 1, 3]] * 3
    for step, same in zip(one, two, strict=True):
        for part, other in zip(step, same, strict=True):
            assert torch.equal(part, other)
        of_source, of_pseudo, of_target = (part.amin(dim=(1, 2, 3)) // 20 for part in step)
        assert of_source.tolist() == [0, 1] or of_source.tolist() == [0, 2]
        assert (of_pseudo >= 7).all()
        assert (of_target >= 5).all()
    assert not torch.equal(one[0][2], one[1][2])  # the same rows, seen in another way


@pytest.mark.parametrize("pinned", [True, False])
def test_memory_is_pinned_for_a_run_on_a_gpu_alone(
    domains: tuple[Images, Images], pinned: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)  # whatever else is there
    augmented = AugmentedBatches(*domains, PREPROCESSING, workers=0, pinned=pinned)
    assert augmented._loader.pin_memory is pinned


def test_views_follow_the_generator_and_leave_the_global_one_alone(
    domains: tuple[Images, Images],
) -> None:
    torch.manual_seed(3)
    expected = torch.rand(1)
    torch.manual_seed(3)
    first, again, other = (seen(domains, seed=seed)[0][2] for seed in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert torch.equal(torch.rand(1), expected)


def test_what_is_done_already_changes_nothing_about_the_rest(
    domains: tuple[Images, Images],
) -> None:
    augmented = AugmentedBatches(*domains, PREPROCESSING, workers=0)
    (last,) = augmented.batches(STEPS, Generator().manual_seed(0), done=2)
    for part, whole in zip(last, seen(domains)[2], strict=True):
        assert torch.equal(part, whole)


@pytest.mark.parametrize("workers", [0, 1])
def test_a_file_that_vanishes_is_replaced_and_a_lost_folder_is_told_in_one_line(
    workers: int, domains: tuple[Images, Images]
) -> None:
    domains[1].paths[2].unlink()
    assert len(seen(domains, workers=workers)) == len(STEPS)
    for path in domains[1].paths:
        path.unlink(missing_ok=True)
    with pytest.raises(DataError) as told:
        seen(domains, workers=workers)
    assert re.match(r".*: vanished or changed while training, .* continue$", str(told.value))


def test_inference_sees_what_a_label_is_computed_from(domains: tuple[Images, Images]) -> None:
    batches = list(preprocessed_batches(domains[0], [[2, 0], [1]], PREPROCESSING, workers=2))
    expected = [domains[0].read(row, PREPROCESSING) for row in (2, 0, 1)]
    assert [len(batch) for batch in batches] == [2, 1]
    np.testing.assert_array_equal(torch.cat(batches).numpy(), np.stack(expected))
