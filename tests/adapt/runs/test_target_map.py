from pathlib import Path

import numpy as np
import pytest

from scda.adapt.runs import target_map
from scda.adapt.runs.target_map import make_map, read_map, write_map
from scda.models.errors import GateError


def two_groups(count: int) -> np.ndarray[tuple[int, int], np.dtype[np.float32]]:
    points = np.random.default_rng(0).normal(0, 0.1, (count, 6))
    points[: count // 2, 0] += 5
    return points.astype(np.float32)


def test_what_is_alike_lies_together() -> None:
    rows, places = make_map(two_groups(40), seed=0)
    assert rows.tolist() == list(range(40))
    first, second = places[:20], places[20:]
    between = np.linalg.norm(first.mean(axis=0) - second.mean(axis=0))
    within = max(np.linalg.norm(part - part.mean(axis=0), axis=1).max() for part in (first, second))
    assert between > 1.5 * within


def test_places_fill_the_unit_square_with_one_scale() -> None:
    _, places = make_map(two_groups(40), seed=0)
    assert places.min() >= 0
    assert places.max() <= 1
    assert np.ptp(places, axis=0).max() == pytest.approx(1)


def test_the_same_seed_gives_the_same_map() -> None:
    first, again = (make_map(two_groups(40), seed=3)[1] for _ in range(2))
    np.testing.assert_array_equal(first, again)


def test_of_a_large_target_a_sample_is_laid_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(target_map, "MAX_POINTS", 10)
    rows, places = make_map(two_groups(40), seed=0)
    assert len(rows) == len(places) == len(set(rows.tolist())) == 10
    assert (np.diff(rows) > 0).all()


@pytest.mark.parametrize(("count", "width"), [(2, 6), (3, 1), (7, 4), (9, 1)])
def test_few_images_or_dimensions_have_a_map_too(count: int, width: int) -> None:
    points = np.random.default_rng(0).normal(size=(count, width)).astype(np.float32)
    _, places = make_map(points, seed=0)
    assert places.shape == (count, 2)
    assert np.isfinite(places).all()


def test_equal_images_lie_in_the_middle() -> None:
    _, places = make_map(np.ones((12, 3), np.float32), seed=0)
    assert (places == 0.5).all()


def test_a_map_is_read_as_it_was_written(tmp_path: Path) -> None:
    places = np.array([[0, 0.25], [1, 0.5]], np.float32)
    write_map(tmp_path / "map.csv", ["a,\n.jpg", "9\udce9.png"], places)
    assert read_map(tmp_path / "map.csv") == {"a,\n.jpg": (0, 0.25), "9\udce9.png": (1, 0.5)}


def test_no_map_is_an_empty_one(tmp_path: Path) -> None:
    assert read_map(tmp_path / "map.csv") == {}


@pytest.mark.parametrize("text", ["path,x,y\na,zero,1\n", "name,x,y\na,0,1\n"])
def test_a_damaged_map_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "map.csv").write_text(text)
    with pytest.raises(GateError, match=r"map\.csv: damaged"):
        read_map(tmp_path / "map.csv")
