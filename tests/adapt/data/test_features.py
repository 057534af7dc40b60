import hashlib
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from scda.adapt.data import feature_cache, features
from scda.adapt.data.feature_cache import FeatureCache
from scda.adapt.data.features import BATCH, Extracted, extract
from scda.models.errors import UsageError
from scda.models.images import read_file
from scda.models.networks.backbones import Backbone, load_backbone
from scda.models.networks.conv4 import Conv4
from scda.models.networks.network import PixelBackbone
from scda.models.session import Session
from tests.adapt.data.conftest import weights
from tests.adapt.data.torch_session import TorchSession
from tests.nasty import nasty_files

REALLY_OPEN = features._open


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Forty pictures of noise, each of its own brightness."""
    folder, rng = tmp_path_factory.mktemp("images"), np.random.default_rng(0)
    paths = [folder / f"{i:02d}.png" for i in range(40)]
    for i, path in enumerate(paths):
        noise = rng.integers(0, 40 + 5 * i, (40, 48, 3))
        Image.fromarray(noise.astype(np.uint8)).save(path)
    return paths


@pytest.fixture(autouse=True)
def sessions(monkeypatch: pytest.MonkeyPatch) -> list[TorchSession]:
    """Every session that was opened."""
    opened: list[TorchSession] = []

    def open_torch(backbone: Backbone, *_: object) -> TorchSession:
        opened.append(TorchSession(backbone))
        return opened[-1]

    monkeypatch.setattr(features, "_open", open_torch)
    return opened


@pytest.fixture(scope="module")
def exported(backbone: Backbone, tmp_path_factory: pytest.TempPathFactory) -> Session:
    return REALLY_OPEN(backbone, partial(Session, provider="cpu"), tmp_path_factory.mktemp("kept"))


def by_torch(paths: list[Path], backbone: Backbone) -> torch.Tensor:
    pixels = np.stack([backbone.preprocessing.apply(read_file(path)) for path in paths])
    with torch.no_grad():
        result: torch.Tensor = PixelBackbone(backbone).eval()(torch.from_numpy(pixels))
    return result


def never(*_: object, **__: object) -> None:
    raise AssertionError("must not be called")


def same(one: Extracted, two: Extracted) -> bool:
    return one.paths == two.paths and bool((one.features == two.features).all())


def test_onnx_runtime_gives_the_backbones_features(
    exported: Session,
    images: list[Path],
    backbone: Backbone,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(features, "_open", lambda *_: exported)
    found = extract(images, backbone, cache_folder=tmp_path)
    assert found.paths == images
    assert found.features.dtype == np.float32
    # Two runtimes add in another order; the features are about 1.
    np.testing.assert_allclose(found.features, by_torch(images, backbone), atol=1e-4)


def test_a_value_depends_neither_on_its_place_in_the_batch_nor_on_its_neighbours(
    exported: Session,
    images: list[Path],
    backbone: Backbone,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(features, "_open", lambda *_: exported)
    forward = extract(images, backbone, cache_folder=tmp_path / "a").features
    backward = extract(images[::-1], backbone, cache_folder=tmp_path / "b").features
    alone = extract(images[17:18], backbone, cache_folder=tmp_path / "c").features
    np.testing.assert_array_equal(backward[::-1], forward)
    np.testing.assert_array_equal(alone[0], forward[17])


def test_several_backbones_use_the_cache_of_each(
    images: list[Path], backbone: Backbone, sessions: list[TorchSession], tmp_path: Path
) -> None:
    files = [weights(tmp_path, seed) for seed in (0, 1)]
    both = load_backbone("conv4+conv4", weights=Path("+".join(map(str, files))))
    extract(images, backbone, cache_folder=tmp_path)
    done: list[int] = []
    found = extract(images, both, cache_folder=tmp_path, on_progress=done.append)
    assert [session.calls for session in sessions] == [2, 2]  # the first ran only alone
    assert done == list(range(1, 2 * len(images) + 1))
    parts = [extract(images, part, cache_folder=tmp_path).features for part in both.parts]
    lengths = [np.linalg.norm(rows, axis=1, keepdims=True) for rows in parts]
    expected = np.hstack([rows / length for rows, length in zip(parts, lengths, strict=True)])
    np.testing.assert_allclose(found.features, expected, atol=1e-6)
    assert found.features.shape == (len(images), both.width)


def test_several_backbones_give_nothing_of_nothing(tmp_path: Path) -> None:
    files = [weights(tmp_path, seed) for seed in (0, 1)]
    both = load_backbone("conv4+conv4", weights=Path("+".join(map(str, files))))
    assert extract([], both, cache_folder=tmp_path).features.shape == (0, both.width)


def test_a_file_that_changes_between_two_backbones_is_left_out(
    images: list[Path], tmp_path: Path
) -> None:
    files = [weights(tmp_path, seed) for seed in (0, 1)]
    both = load_backbone("conv4+conv4", weights=Path("+".join(map(str, files))))
    changing = tmp_path / "changing.png"
    changing.write_bytes(images[0].read_bytes())

    def change(done: int) -> None:
        other = tmp_path / "other"
        other.write_bytes(images[done].read_bytes())
        other.replace(changing)  # at once: a reader never sees it empty

    found = extract([images[1], changing], both, cache_folder=tmp_path, on_progress=change)
    assert (found.paths, found.features.shape) == ([images[1]], (1, both.width))
    assert [(bad.path, bad.code) for bad in found.rejected] == [(changing, "unreadable")]
    alone = extract([images[1]], both, cache_folder=tmp_path)
    np.testing.assert_array_equal(found.features, alone.features)


def test_images_come_in_their_order_with_the_digests_of_their_bytes(
    images: list[Path], backbone: Backbone, tmp_path: Path
) -> None:
    found = extract(images, backbone, cache_folder=tmp_path, workers=3)
    assert found.paths == images
    assert found.features.shape == (40, backbone.width)
    assert found.digests == [hashlib.sha256(path.read_bytes()).hexdigest() for path in images]
    assert found.rejected == []


def test_the_number_of_workers_changes_nothing(
    images: list[Path], backbone: Backbone, tmp_path: Path
) -> None:
    one = extract(images, backbone, cache_folder=tmp_path / "1", workers=1)
    assert same(one, extract(images, backbone, cache_folder=tmp_path / "4", workers=4))


def test_a_second_run_decodes_nothing_and_opens_no_model(
    images: list[Path], backbone: Backbone, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = extract(images, backbone, cache_folder=tmp_path)
    monkeypatch.setattr(features, "read_pixels", never)
    monkeypatch.setattr(features, "_open", never)
    assert same(first, extract(images, backbone, cache_folder=tmp_path))


def test_a_file_is_known_by_its_content_and_not_by_its_name(
    images: list[Path], backbone: Backbone, tmp_path: Path, sessions: list[TorchSession]
) -> None:
    path, moved = tmp_path / "x.png", tmp_path / "elsewhere.jpg"
    path.write_bytes(images[0].read_bytes())
    first = extract([path], backbone, cache_folder=tmp_path / "cache")
    moved.write_bytes(images[0].read_bytes())
    np.testing.assert_array_equal(
        extract([moved], backbone, cache_folder=tmp_path / "cache").features, first.features
    )
    assert len(sessions) == 1
    path.write_bytes(images[1].read_bytes())  # the same name, another picture
    other = extract([path], backbone, cache_folder=tmp_path / "cache")
    assert len(sessions) == 2
    assert (other.features != first.features).any()


def test_other_weights_or_another_size_have_a_cache_of_their_own(
    images: list[Path], backbone: Backbone, tmp_path: Path, sessions: list[TorchSession]
) -> None:
    others = [
        backbone,
        load_backbone("conv4", weights=weights(tmp_path, 1)),
        load_backbone("conv4", weights=weights(tmp_path, 0), image_size=40),
    ]
    values = [
        extract(images[:2], other, cache_folder=tmp_path / "cache").features for other in others
    ]
    assert len(sessions) == 3
    assert len(list((tmp_path / "cache").glob("*.sqlite"))) == 3
    assert (values[0] != values[1]).any()
    assert (values[0] != values[2]).any()
    again = extract(images[:2], backbone, cache_folder=tmp_path / "cache").features
    np.testing.assert_array_equal(again, values[0])
    assert len(sessions) == 3


def test_the_same_weights_in_another_file_share_the_cache(
    images: list[Path], backbone: Backbone, tmp_path: Path, sessions: list[TorchSession]
) -> None:
    torch.manual_seed(0)
    torch.save(Conv4().state_dict(), tmp_path / "copy.pt")
    copy = load_backbone("conv4", weights=tmp_path / "copy.pt")
    for one in (backbone, copy):
        extract(images[:2], one, cache_folder=tmp_path / "cache")
    assert len(sessions) == 1


def test_bad_files_are_rejected_with_their_code_and_the_others_stay(
    images: list[Path], backbone: Backbone, tmp_path: Path
) -> None:
    paths, codes = [images[0]], {}
    for name, file in nasty_files().items():
        path = tmp_path / name
        path.write_bytes(file.data)
        paths.append(path)
        codes[path] = file.code
    gone = tmp_path / "gone.png"
    codes[gone] = "unreadable"
    found = extract([*paths, gone, images[1]], backbone, cache_folder=tmp_path / "cache")
    rejected = {bad.path: bad.code for bad in found.rejected}
    assert rejected == {path: code for path, code in codes.items() if code != "ok"}
    assert found.paths[0] == images[0]
    assert found.paths[-1] == images[1]
    assert set(found.paths[1:-1]) == {path for path, code in codes.items() if code == "ok"}
    assert len(found.features) == len(found.paths) == len(found.digests)
    assert all(bad.message for bad in found.rejected)


def test_bad_files_alone_leave_nothing(
    backbone: Backbone, tmp_path: Path, sessions: list[TorchSession]
) -> None:
    bad = tmp_path / "text.jpg"
    bad.write_text("no picture")
    found = extract([bad], backbone, cache_folder=tmp_path / "cache")
    assert (found.paths, found.digests, sessions) == ([], [], [])
    assert found.features.shape == (0, backbone.width)
    assert extract([], backbone, cache_folder=tmp_path / "cache").features.shape[0] == 0


def test_twins_are_computed_once_and_both_kept(
    images: list[Path], backbone: Backbone, tmp_path: Path, sessions: list[TorchSession]
) -> None:
    twin = tmp_path / "twin.png"
    twin.write_bytes(images[0].read_bytes())
    found = extract([images[0], images[1], twin], backbone, cache_folder=tmp_path / "cache")
    assert found.paths == [images[0], images[1], twin]
    np.testing.assert_array_equal(found.features[0], found.features[2])
    with sqlite3.connect(next((tmp_path / "cache").iterdir())) as database:
        assert database.execute("SELECT count(*) FROM features").fetchone() == (2,)
    database.close()
    assert len(sessions) == 1


def test_more_twins_than_a_batch_holds_are_one_image(
    images: list[Path], backbone: Backbone, tmp_path: Path, sessions: list[TorchSession]
) -> None:
    twins = [tmp_path / f"{i}.png" for i in range(BATCH + 1)]
    for twin in twins:
        twin.write_bytes(images[0].read_bytes())
    found = extract(twins, backbone, cache_folder=tmp_path / "cache")
    assert sessions[0].calls == 1
    assert (found.features == found.features[0]).all()


def test_progress_counts_every_file(images: list[Path], backbone: Backbone, tmp_path: Path) -> None:
    seen: list[int] = []
    paths = [*images[:3], tmp_path / "gone.png"]
    extract(paths, backbone, cache_folder=tmp_path, on_progress=seen.append)
    assert seen == [1, 2, 3, 4]


def test_a_stopped_run_loses_no_more_than_a_batch(
    images: list[Path], backbone: Backbone, tmp_path: Path
) -> None:
    def kill(done: int) -> None:
        if done == BATCH + 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        extract(images, backbone, cache_folder=tmp_path, on_progress=kill)
    cache = FeatureCache(tmp_path, backbone)
    assert len(cache.digests()) == BATCH
    cache.close()


@pytest.fixture
def cache(backbone: Backbone, tmp_path: Path) -> Iterator[FeatureCache]:
    opened = FeatureCache(tmp_path / "cache", backbone)
    yield opened
    opened.close()


def test_what_is_in_the_cache_already_stays(cache: FeatureCache, backbone: Backbone) -> None:
    cache.add(["a"], np.ones((1, backbone.width), np.float32))
    cache.add(["a", "b"], np.full((2, backbone.width), 2, np.float32))
    assert cache.digests() == {"a", "b"}
    assert set(cache.get("a").tolist()) == {1}
    assert set(cache.get("b").tolist()) == {2}


def test_features_that_do_not_fit_are_mapped_from_a_file_that_leaves_no_trace(
    cache: FeatureCache, backbone: Backbone, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache.add(
        ["a", "b"], np.stack([np.full(backbone.width, value, np.float32) for value in (1, 2)])
    )
    in_memory, files = cache.rows(["b", "a", "b"]), list(cache.path.parent.iterdir())
    monkeypatch.setattr(feature_cache, "MAPPED_ABOVE_BYTES", 2 * 4 * backbone.width)
    mapped = cache.rows(["b", "a", "b"])
    assert isinstance(mapped, np.memmap)
    assert not isinstance(in_memory, np.memmap)
    assert mapped.tolist() == in_memory.tolist()
    assert list(cache.path.parent.iterdir()) == files
    assert not isinstance(cache.rows(["a", "b"]), np.memmap)


def test_every_vector_needs_its_digest(cache: FeatureCache) -> None:
    with pytest.raises(ValueError, match="zip"):
        cache.add(["a"], np.ones((2, 3), np.float32))
    assert cache.digests() == set()


def test_a_writer_waits_for_another_process(cache: FeatureCache, backbone: Backbone) -> None:
    script = (
        "import sqlite3, sys, time\n"
        "database = sqlite3.connect(sys.argv[1], isolation_level=None)\n"
        "database.execute('BEGIN IMMEDIATE')\n"
        "row = ('theirs', bytes(int(sys.argv[2])))\n"
        "database.execute('INSERT INTO features VALUES (?, ?)', row)\n"
        "print('locked', flush=True)\n"
        "time.sleep(0.4)\n"
        "database.execute('COMMIT')\n"
    )
    command = [sys.executable, "-c", script, str(cache.path), str(4 * backbone.width)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "locked\n"
        cache.add(["ours"], np.ones((1, backbone.width), np.float32))
    assert other.returncode == 0
    assert cache.digests() == {"ours", "theirs"}


def test_two_runs_at_once_share_one_cache(
    images: list[Path], backbone: Backbone, tmp_path: Path
) -> None:
    def one(paths: list[Path]) -> Extracted:
        return extract(paths, backbone, cache_folder=tmp_path, workers=2)

    with ThreadPoolExecutor(2) as pool:
        forward, backward = pool.map(one, [images, images[::-1]])
    np.testing.assert_array_equal(backward.features[::-1], forward.features)


def test_a_cache_folder_that_cannot_be_made_is_named(
    images: list[Path], backbone: Backbone, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(UsageError, match="cannot use this feature cache"):
        extract(images, backbone, cache_folder=tmp_path / "file")
    with pytest.raises(UsageError, match="cannot use this feature cache"):
        extract(images, backbone, cache_folder=tmp_path / "file" / "deeper")
