import math
from pathlib import Path

import numpy as np
import pytest

from scda.models import index as index_module
from scda.models.errors import GateError
from scda.models.index import Features, build_index, nearest, normalised, read_index, write_index


def features(count: int, width: int = 6, *, seed: int = 0) -> Features:
    return np.random.default_rng(seed).normal(size=(count, width)).astype(np.float32)


def distance(first: list[float], second: list[float]) -> float:
    """The definition, 1 - cosine, written out."""
    product = sum(a * b for a, b in zip(first, second, strict=True))
    return 1 - product / math.hypot(*first) / math.hypot(*second)


def test_distances_are_one_minus_the_cosine_nearest_first() -> None:
    stored, asked = features(9), features(4, seed=1)
    distances, ids = nearest(build_index(stored), asked, 9)
    for row, query in enumerate(asked.tolist()):
        by_hand = [distance(query, vector) for vector in stored.tolist()]
        order = sorted(range(9), key=by_hand.__getitem__)
        assert ids[row].tolist() == order
        # float32 sums of six products
        assert distances[row].tolist() == pytest.approx([by_hand[i] for i in order], abs=1e-6)


def test_length_does_not_matter() -> None:
    stored, asked = features(9), features(4, seed=1)
    distances, ids = nearest(build_index(stored), asked, 3)
    scaled = nearest(build_index(np.float32(100) * stored), np.float32(0.01) * asked, 3)
    np.testing.assert_allclose(scaled[0], distances, atol=1e-6)
    np.testing.assert_array_equal(scaled[1], ids)


def test_distances_never_leave_0_to_2() -> None:
    stored = features(500, 3)
    distances, _ = nearest(build_index(np.concatenate([stored, -stored])), stored, 1000)
    assert distances[:, 0].max() < 1e-6
    assert distances.min() >= 0
    assert distances.max() <= 2
    assert distances[:, -1].min() > 2 - 1e-6


def test_no_more_are_returned_than_there_are() -> None:
    distances, ids = nearest(build_index(features(3)), features(2), 10)
    assert distances.shape == ids.shape == (2, 3)


def test_rows_become_one_long_and_zeros_stay_zeros() -> None:
    rows = normalised(np.array([[3, 4], [0, 0], [-1e-12, 0]], np.float32))
    expected = np.array([[0.6, 0.8], [0, 0], [-1, 0]])
    np.testing.assert_allclose(rows, expected, atol=1e-7)
    assert rows.dtype == np.float32


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_features_that_are_not_finite_are_refused(bad: float) -> None:
    asked = features(2)
    asked[1, 1] = bad
    with pytest.raises(ValueError, match="finite"):
        nearest(build_index(features(3)), asked, 1)


@pytest.mark.parametrize("shape", [(2, 5), (6,), (1, 2, 6)])
def test_features_of_another_shape_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"expected \(N, 6\)"):
        nearest(build_index(features(3)), np.zeros(shape, np.float32), 1)


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    index, asked = build_index(features(9)), features(4, seed=1)
    write_index(index, tmp_path / "clusters.faiss")
    read = nearest(read_index(tmp_path / "clusters.faiss", width=6), asked, 9)
    np.testing.assert_array_equal(read, nearest(index, asked, 9))


def test_the_same_vectors_give_the_same_file(tmp_path: Path) -> None:
    write_index(build_index(features(9)), tmp_path / "a")
    write_index(build_index(features(9)), tmp_path / "b")
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_vectors_of_another_width_are_named(tmp_path: Path) -> None:
    write_index(build_index(features(3)), tmp_path / "clusters.faiss")
    with pytest.raises(GateError, match=r"^clusters\.faiss: vectors have 6 dimensions, .* 8$"):
        read_index(tmp_path / "clusters.faiss", width=8)


def test_a_file_that_is_no_index_is_named(tmp_path: Path) -> None:
    path = tmp_path / "clusters.faiss"
    write_index(build_index(features(3)), path)
    whole = path.read_bytes()
    for damaged in (*(whole[:length] for length in range(len(whole))), b"text" * 50):
        path.write_bytes(damaged)
        with pytest.raises(GateError, match=r"^clusters\.faiss: is not a faiss index$"):
            read_index(path, width=6)


def test_a_missing_index_is_named(tmp_path: Path) -> None:
    with pytest.raises(GateError, match=r"^clusters\.faiss: is not a faiss index$"):
        read_index(tmp_path / "clusters.faiss", width=6)


def test_many_vectors_get_an_approximate_index_that_finds_nearly_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stored, asked = features(2000), features(100, seed=1)
    _, exact = nearest(build_index(stored), asked, 10)
    monkeypatch.setattr(index_module, "EXACT_UP_TO", 100)
    distances, found = nearest(build_index(stored), asked, 10)
    hits = sum(len(set(a) & set(b)) for a, b in zip(exact.tolist(), found.tolist(), strict=True))
    assert hits / exact.size > 0.95
    assert (np.diff(distances, axis=1) >= 0).all()


def test_an_approximate_index_never_answers_with_a_vector_it_lacks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(index_module, "EXACT_UP_TO", 100)
    # Far, tight clusters leave a graph in parts: a search then ends before it has found enough.
    centres = np.repeat(8 * features(20, 8), 50, axis=0)
    stored = centres + 0.3 * features(1000, 8, seed=1)
    distances, ids = nearest(build_index(stored), stored[:50], 900)
    assert ids.shape[1] > 0
    assert ids.min() >= 0
    assert distances.max() <= 2
