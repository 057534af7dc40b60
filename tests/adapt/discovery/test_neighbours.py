import numpy as np
import pytest

from scda.adapt.discovery.kmeans import Points
from scda.adapt.discovery.neighbours import nearest_others
from scda.models.index import Ids


def cloud(images: int, *, seed: int = 0) -> Points:
    return np.random.default_rng(seed).normal(size=(images, 5)).astype(np.float32)


def holds_itself(found: Ids) -> bool:
    return bool((found == np.arange(len(found))[:, None]).any())


@pytest.mark.parametrize("seed", range(3))
def test_the_nearest_others_are_their_definition(seed: int) -> None:
    points = cloud(30, seed=seed)
    units = points / np.linalg.norm(points, axis=1, keepdims=True)
    for row, found in enumerate(nearest_others(points, 4).tolist()):
        others = [other for other in range(30) if other != row]
        assert found == sorted(others, key=lambda other: -(units[row] @ units[other]))[:4]


@pytest.mark.parametrize("copies", [2, 3, 10, 40])
def test_no_row_holds_itself_among_copies_of_one_image(copies: int) -> None:
    points = np.concatenate([cloud(20), np.tile(cloud(1, seed=9), (copies, 1))])
    order = np.random.default_rng(1).permutation(len(points))
    found = nearest_others(points[order], 5)
    assert found.shape == (20 + copies, 5)
    assert not holds_itself(found)
    assert all(len(set(row)) == 5 for row in found.tolist())
    if copies > 5:  # the neighbours of a copy are other copies
        assert (order[found[order >= 20]] >= 20).all()


@pytest.mark.parametrize(("images", "columns"), [(1, 0), (2, 1), (5, 4), (6, 5), (7, 5)])
def test_fewer_images_than_neighbours_are_enough(images: int, columns: int) -> None:
    for points in (cloud(images), np.ones((images, 5), np.float32)):
        found = nearest_others(points, 5)
        assert found.shape == (images, columns)
        assert not holds_itself(found)
