from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file

from scda.adapt.data import domain_statistics as module
from scda.adapt.data.domain_statistics import (
    DomainStatistics,
    domain_backbone,
    domain_features,
    domain_statistics,
    evenly,
    read_statistics,
    write_statistics,
)
from scda.models.errors import GateError
from scda.models.networks.backbones import Backbone, load_backbone
from scda.models.networks.conv4 import Conv4


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder, rng = tmp_path_factory.mktemp("images"), np.random.default_rng(0)
    for number in range(20):
        Image.fromarray(rng.integers(0, 80, (32, 32, 3), np.uint8)).save(folder / f"{number}.png")
    return sorted(folder.iterdir())


def same(one: DomainStatistics | None, other: DomainStatistics | None) -> bool:
    assert one
    assert other
    return all(
        torch.equal(tensor, other[part][name])
        for part, statistics in one.items()
        for name, tensor in statistics.items()
    )


@pytest.mark.parametrize(("count", "expected"), [(2, [0, 2]), (5, [0, 1, 2, 3, 4]), (9, None)])
def test_a_sample_is_evenly_spaced(count: int, expected: list[int] | None) -> None:
    assert evenly(range(5), count) == (expected or list(range(5)))


def test_statistics_are_kept_in_the_cache(
    backbone: Backbone, images: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = domain_statistics(images, backbone, cache_folder=tmp_path)
    (file,) = tmp_path.iterdir()
    with monkeypatch.context() as patch:
        patch.setattr(module, "batch_statistics", None)  # not called
        assert same(domain_statistics(images, backbone, cache_folder=tmp_path), found)
    file.write_bytes(b"damaged")
    assert same(domain_statistics(images, backbone, cache_folder=tmp_path), found)
    assert found
    adapted = domain_backbone(backbone, found)
    assert adapted.id != backbone.id


def test_they_do_not_depend_on_the_number_of_threads(
    backbone: Backbone, images: list[Path], tmp_path: Path
) -> None:
    found = []
    before = torch.get_num_threads()
    for threads in (1, 2):
        torch.set_num_threads(threads)
        found.append(domain_statistics(images, backbone, cache_folder=tmp_path / str(threads)))
        assert torch.get_num_threads() == threads
    torch.set_num_threads(before)
    assert same(*found)


def test_features_by_batch_are_in_the_order_of_the_files_and_kept(
    backbone: Backbone, images: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_BATCH", 10)  # of 20 images, so that there are two batches
    found = domain_features(images, backbone, cache_folder=tmp_path)
    assert found is not None
    half = domain_features(images[::2], backbone, cache_folder=tmp_path)
    assert half is not None
    assert torch.allclose(found[::2], half, atol=1e-5)
    with monkeypatch.context() as patch:
        patch.setattr(module, "batch_features", None)  # not called
        again = domain_features(images, backbone, cache_folder=tmp_path)
    assert again is not None
    assert torch.equal(again, found)


def test_a_lost_image_or_few_images_give_no_features(
    backbone: Backbone, images: list[Path], tmp_path: Path
) -> None:
    bad = tmp_path / "bad.png"
    for content in (None, b"no image"):
        if content:
            bad.write_bytes(content)
        assert domain_features([*images, bad], backbone, cache_folder=tmp_path) is None
    assert domain_features(images[:7], backbone, cache_folder=tmp_path) is None


def test_progress_counts_images(backbone: Backbone, images: list[Path], tmp_path: Path) -> None:
    done: list[int] = []
    for compute in (domain_statistics, domain_features):
        compute(images, backbone, cache_folder=tmp_path, on_progress=done.append)
    assert done == [20, 20]


def test_unreadable_files_are_passed_over_and_few_images_give_none(
    backbone: Backbone, images: list[Path], tmp_path: Path
) -> None:
    (tmp_path / "bad.png").write_bytes(b"no image")
    files = [*images, tmp_path / "bad.png", tmp_path / "missing.png"]
    assert domain_statistics(files, backbone, cache_folder=tmp_path)
    assert domain_statistics(images[:7], backbone, cache_folder=tmp_path) is None


def test_they_are_written_and_read(backbone: Backbone, images: list[Path], tmp_path: Path) -> None:
    found = domain_statistics(images, backbone, cache_folder=tmp_path)
    assert found
    path = tmp_path / "statistics.safetensors"
    assert read_statistics(path) == {}
    write_statistics(path, source=found, target=found)
    read = read_statistics(path)
    assert same(read["source"], found)
    assert same(read["target"], found)
    path.write_bytes(b"damaged")
    with pytest.raises(GateError, match=r"statistics\.safetensors: damaged"):
        read_statistics(path)


def test_each_of_several_backbones_has_its_own(images: list[Path], tmp_path: Path) -> None:
    paths = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        paths.append(tmp_path / f"{seed}.safetensors")
        save_file(Conv4().state_dict(), paths[-1])
    both = load_backbone("conv4+conv4", weights=Path("+".join(map(str, paths))))
    found = domain_statistics(images, both, cache_folder=tmp_path / "cache")
    assert found
    assert set(found) == {part.id for part in both.parts}
    adapted = domain_backbone(both, found)
    assert adapted.width == both.width
    features = domain_features(images, both, cache_folder=tmp_path / "cache")
    assert features is not None
    assert features.shape == (len(images), both.width)
    assert torch.allclose(features.norm(dim=1), torch.tensor(2**0.5))
    assert all(a.id != b.id for a, b in zip(adapted.parts, both.parts, strict=True))
