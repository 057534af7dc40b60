"""What is read of an earlier model: its images, its centroids, and the decisions of people."""

import io
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from scda.adapt.continuity.anchors import anchors_of
from scda.adapt.continuity.memory import Memory, remember
from scda.adapt.runs.earlier_run import read_earlier
from scda.models.bundle import MEMORY, NEIGHBOUR_ROWS
from scda.models.errors import GateError
from scda.models.names import Names
from tests.adapt.continuity.earlier_models import centroids, earlier_model
from tests.bundles import make_bundle

D0, D1, D2 = (f"discovered-{i:03d}" for i in range(3))


def test_centroids_are_those_of_a_class_whatever_all_images_share() -> None:
    rows = np.array([[1, 0, 5], [1, 0, 5], [0, 1, 5], [0, 1, 5]], np.float32)
    memory = remember("b", rows, np.array([0, 0, 2, 2]), 3)
    expected = [[0.5**0.5, -(0.5**0.5), 0], [0, 0, 0], [-(0.5**0.5), 0.5**0.5, 0]]
    np.testing.assert_allclose(memory.centroids, expected, atol=1e-6)
    brighter = remember("b", rows + np.array([0, 0, 30], np.float32), np.array([0, 0, 2, 2]), 3)
    np.testing.assert_allclose(memory.similarity(brighter)[0], [1, 0, -1], atol=1e-6)
    other = remember("another", rows, np.array([0, 0, 2, 2]), 3)
    assert not memory.similarity(other).any()


def test_memory_is_read_back_and_a_damaged_one_refused(tmp_path: Path) -> None:
    memory = centroids((1.0, 0.0), (0.0, 1.0))
    gone = np.array([0.6, 0.8], np.float32)
    for one in (memory, memory.with_vanished({D2: gone})):
        one.save(tmp_path / MEMORY)
        with (tmp_path / MEMORY).open("rb") as file:
            again = Memory.load(file, 2)
        assert again.backbone == memory.backbone
        np.testing.assert_array_equal(again.centroids, memory.centroids)
    np.testing.assert_array_equal(again.vanished[D2], gone)
    np.savez(tmp_path / "other.npz", backbone=np.array("b"), centroids=memory.centroids)
    with (tmp_path / "other.npz").open("rb") as file:  # of the first version
        assert not Memory.load(file, 2).vanished
    memory.with_vanished({D2: gone}).save(tmp_path / MEMORY)
    with np.load(tmp_path / MEMORY) as arrays:
        stored = dict(arrays)
    stored["vanished"] = np.ones((1, 3), np.float32)
    np.savez(tmp_path / "wide.npz", **stored)
    with (tmp_path / "wide.npz").open("rb") as file, pytest.raises(GateError, match="damaged"):
        Memory.load(file, 2)
    with (tmp_path / MEMORY).open("rb") as file, pytest.raises(GateError, match="of 3 classes"):
        Memory.load(file, 3)
    (tmp_path / MEMORY).write_bytes(b"PK\3\4")
    with (tmp_path / MEMORY).open("rb") as file, pytest.raises(GateError, match="damaged"):
        Memory.load(file, 2)


def test_a_bundle_of_an_older_version_has_neither_images_nor_centroids(tmp_path: Path) -> None:
    earlier = read_earlier(make_bundle(tmp_path / "bundle", targets={"a.jpg": "red"}))
    assert earlier.images == {}
    assert earlier.memory is None
    assert earlier.retired == {}
    assert list(earlier.row) == ["known-000", "known-001", "known-002", D0, D1]


def test_images_of_no_class_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = pa.table({"sha256": ["ab"], "class_id": ["discovered-009"]})
    file = io.BytesIO()
    pq.write_table(rows, file)
    write = pq.write_table

    def damaged(table: pa.Table, place: Path) -> None:
        write(rows if Path(place).name == NEIGHBOUR_ROWS else table, place)

    monkeypatch.setattr(pq, "write_table", damaged)
    folder = make_bundle(tmp_path / "bundle", targets={"a.jpg": "red"})
    with pytest.raises(GateError, match="found images of 'discovered-009', no class of it"):
        read_earlier(folder)


def test_only_classes_that_people_decided_on_are_kept_apart() -> None:
    images = {"a": "known-000", "b": D0, "c": D1, "d": D2}
    names = Names(version=1, labels={D0: "stapler"}, merges={D1: D0})
    earlier = earlier_model(images, names=names)
    row = earlier.row[D0]
    assert anchors_of(earlier, list("abcdx")).tolist() == [-1, row, row, -1, -1]
    dropped = earlier_model(images, names=Names(version=1, drops=frozenset([D2])))
    assert anchors_of(dropped, list("abcd")).tolist() == [-1, -1, -1, earlier.row[D2]]
    assert anchors_of(earlier, list("abcd"), {row}).tolist() == [-1, -1, row, -1]
