"""A damaged cache is computed again, and one that is out of reach is named."""

import sqlite3
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from scda.adapt.data.feature_cache import cache_path, cached_features
from scda.adapt.data.features import Extracted, extract
from scda.models.errors import UsageError
from scda.models.networks.backbones import Backbone, load_backbone
from scda.models.networks.weights import fetch_weights
from tests.conftest import TinyData


@pytest.fixture(scope="module")
def backbone(tiny: TinyData) -> Backbone:
    return load_backbone("conv4", weights=tiny.weights, image_size=32)


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("images")
    for number in range(4):
        Image.new("RGB", (40, 40), (60 * number, 0, 0)).save(folder / f"{number}.png")
    return sorted(folder.iterdir())


@pytest.fixture(scope="module")
def whole(
    images: list[Path], backbone: Backbone, tmp_path_factory: pytest.TempPathFactory
) -> tuple[bytes, Extracted]:
    """The file of a cache that is as it should be, and what is in it."""
    folder = tmp_path_factory.mktemp("cache")
    found = extract(images, backbone, cache_folder=folder)
    return cache_path(folder, backbone).read_bytes(), found


DAMAGES = ("no database", "bytes inside", "half", "empty", "cut vectors", "journal")


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_cache_is_computed_again(
    images: list[Path],
    backbone: Backbone,
    whole: tuple[bytes, Extracted],
    tmp_path: Path,
    damage: str,
) -> None:
    (data, before), path = whole, cache_path(tmp_path, backbone)
    damaged = {
        "no database": b"this is no database" * 500,
        "bytes inside": data[:4096] + b"\xff" * (len(data) - 4096),
        "half": data[: len(data) // 2],
        "empty": b"",
    }
    path.write_bytes(damaged.get(damage, data))
    if damage == "cut vectors":
        with sqlite3.connect(path) as database:
            database.execute("UPDATE features SET vector = substr(vector, 1, 7)")
        database.close()
    if damage == "journal":
        path.write_bytes(b"x")
        path.with_name(f"{path.name}-journal").write_bytes(b"x" * 5000)
    again = extract(images, backbone, cache_folder=tmp_path)
    np.testing.assert_array_equal(again.features, before.features)
    kept = cached_features(again.digests, backbone, tmp_path)
    assert kept is not None
    np.testing.assert_array_equal(kept, before.features)
    assert cached_features(["0" * 64], backbone, tmp_path) is None


def test_another_database_is_named_with_what_to_do(
    images: list[Path], backbone: Backbone, tmp_path: Path
) -> None:
    with sqlite3.connect(cache_path(tmp_path, backbone)) as database:
        database.execute("CREATE TABLE features (mine TEXT)")
    database.close()
    with pytest.raises(
        UsageError, match=r"delete the file, or choose another folder with --cache$"
    ):
        extract(images, backbone, cache_folder=tmp_path)
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(UsageError, match=r"cannot use this feature cache: (File|Not a)"):
        extract(images, backbone, cache_folder=tmp_path / "file")


def test_damaged_weights_in_the_cache_are_downloaded_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cached = tmp_path / "hub" / "checkpoints" / "net-0123abcd.pth"
    cached.parent.mkdir(parents=True)
    cached.write_bytes(b"half a file")
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))

    def load(url: str, **unused: object) -> dict[str, torch.Tensor]:
        if cached.exists():
            raise RuntimeError("PytorchStreamReader failed")
        return {"weight": torch.ones(1)}

    monkeypatch.setattr(torch.hub, "load_state_dict_from_url", load)
    url = f"https://example.org/{cached.name}"
    assert list(fetch_weights(url, "net", lambda line: None)) == ["weight"]

    def offline(url: str, **unused: object) -> dict[str, torch.Tensor]:
        raise OSError("no network")

    cached.write_bytes(b"half a file")
    monkeypatch.setattr(torch.hub, "load_state_dict_from_url", offline)
    with pytest.raises(UsageError, match=r"cannot download its weights \(no network\); download"):
        fetch_weights(url, "net", lambda line: None)
