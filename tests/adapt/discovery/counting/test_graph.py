from typing import Any

import networkx
import numpy as np
import pytest

from scda.adapt.discovery.counting.graph import count_communities
from scda.adapt.discovery.kmeans import Points
from scda.models.index import Ids

Found = list[set[int]]


def groups(count: int, *, each: int = 25, width: int = 12, seed: int = 0) -> Points:
    noise = np.random.default_rng(seed).normal(0, 0.2, (count * each, width))
    return (np.repeat(np.eye(width)[:count], each, axis=0) + noise).astype(np.float32)


def labels(known: int, each: int = 25) -> Ids:
    return np.repeat(np.arange(known), each)


def edges_by_hand(rows: list[list[float]], neighbours: int) -> dict[tuple[int, int], float]:
    """Return the shared nearest neighbours over all of them, an image being its own nearest."""

    def cosine(i: int, j: int) -> float:
        dot = sum(a * b for a, b in zip(rows[i], rows[j], strict=True))
        lengths = sum(a * a for a in rows[i]) * sum(b * b for b in rows[j])
        return float(dot / lengths**0.5)

    images = range(len(rows))
    near = [set(sorted(images, key=lambda j: -cosine(i, j))[: neighbours + 1]) for i in images]
    return {
        (i, j): len(near[i] & near[j]) / len(near[i] | near[j])
        for i in images
        for j in images
        if i < j and (j in near[i] or i in near[j])
    }


def chunks(*sizes: int) -> Found:
    """Return communities of these sizes, one row after the other."""
    ends = [sum(sizes[: place + 1]) for place in range(len(sizes))]
    return [set(range(end - size, end)) for end, size in zip(ends, sizes, strict=True)]


@pytest.fixture
def louvain(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Let Louvain find what is given, turn by turn, the last again and again."""

    def answer(*by_turn: Found) -> list[dict[str, Any]]:
        asked: list[dict[str, Any]] = []

        def found(graph: Any, *, resolution: float, seed: int) -> Found:
            asked.append({"graph": graph, "resolution": resolution, "seed": seed})
            return by_turn[min(len(asked), len(by_turn)) - 1]

        monkeypatch.setattr(networkx.community, "louvain_communities", found)
        return asked

    return answer


def counted(known_labels: Ids, *, images: int = 40, seed: int = 0) -> int:
    points = np.random.default_rng(0).normal(size=(images, 3)).astype(np.float32)
    return count_communities(points, known_labels, seed=seed)


@pytest.mark.parametrize("new", [1, 2, 3, 5])
@pytest.mark.parametrize("known", [2, 4])
def test_separated_groups_are_counted(known: int, new: int) -> None:
    for seed in range(2):
        assert count_communities(groups(known + new, seed=seed), labels(known), seed=seed) == new


def test_the_graph_is_that_of_shared_neighbours(louvain: Any) -> None:
    points = np.random.default_rng(0).normal(size=(30, 5)).astype(np.float32)
    asked = louvain(chunks(30))
    count_communities(points, labels(1, 10), seed=0)
    graph = asked[0]["graph"]
    actual = {(min(i, j), max(i, j)): weight for i, j, weight in graph.edges(data="weight")}
    assert actual == pytest.approx(edges_by_hand(points.tolist(), 10))
    assert len(graph) == 30


def test_resolutions_rise_until_there_are_more_known_groups_than_classes(louvain: Any) -> None:
    asked = louvain(chunks(20, 20), chunks(10, 10, 20), chunks(10, 5, 5, 10, 10))
    counted(labels(2, 10), seed=7)
    resolutions = [turn["resolution"] for turn in asked]
    assert len(asked) == 3
    assert resolutions == sorted(resolutions)
    assert {turn["seed"] for turn in asked} == {7}


def test_the_coarsest_that_fits_the_known_classes_is_taken(louvain: Any) -> None:
    louvain(chunks(20, 20), chunks(10, 10, 20), chunks(10, 10, 10, 10), chunks(5, 5, 10, 20))
    assert counted(labels(2, 10)) == 1


def test_the_nearest_is_taken_where_none_fits(louvain: Any) -> None:
    louvain(chunks(20, 20), chunks(5, 5, 5, 5, 10, 10))  # 1 or 4 known groups, 2 are wanted
    assert counted(labels(2, 10)) == 1
    louvain(chunks(20, 20), chunks(5, 5, 10, 10, 10))  # 1 or 3: both as far
    assert counted(labels(2, 10)) == 1
    louvain(chunks(20, 20), chunks(5, 5, 5, 5, 10, 10))  # 1 or 4, 3 are wanted
    assert counted(np.arange(20) % 3) == 2


def test_a_community_counts_for_the_side_that_most_of_it_is_of(louvain: Any) -> None:
    louvain(chunks(10, 20, 10))  # half of the middle one is of T_kn
    assert counted(labels(2, 10)) == 1
    louvain(chunks(10, 21, 9), chunks(10, 10, 5, 5, 10))  # less than half: one known group is short
    assert counted(labels(2, 10)) == 3
    louvain(chunks(10, 9, 10, 11))  # the third has one image of T_kn
    assert counted(labels(2, 10)) == 2


def test_a_community_of_two_images_is_no_class(louvain: Any) -> None:
    louvain(chunks(10, 10, 15, 3, 2))
    assert counted(labels(2, 10)) == 2
    louvain(chunks(2, 8, 10, 20))
    assert counted(labels(2, 10)) == 1


def test_the_same_seed_counts_the_same() -> None:
    points = np.random.default_rng(0).normal(size=(90, 6)).astype(np.float32)
    counts = {count_communities(points, labels(3, 15), seed=3) for _ in range(3)}
    assert len(counts) == 1


def test_pseudo_labels_need_not_be_numbered_from_0() -> None:
    points = groups(5)
    assert count_communities(points, 7 * labels(3) + 4, seed=0) == 2


def test_one_implicit_image_is_one_class() -> None:
    assert count_communities(groups(4)[:76], labels(3), seed=0) == 1
    # The last image is in the middle of a known class.
    assert count_communities(groups(4), labels(4)[:99], seed=0) == 1


@pytest.mark.parametrize("images", [1, 2, 3, 5, 10, 11])
@pytest.mark.parametrize("known", [0, 1, 3])
def test_fewer_images_than_neighbours_are_enough(images: int, known: int) -> None:
    points = np.random.default_rng(images).normal(size=(images, 4)).astype(np.float32)
    split = min(known, images - 1)
    for given in (points, points[np.zeros(images, int)], np.zeros_like(points)):
        assert 1 <= count_communities(given, np.arange(split), seed=0) <= max(1, images // 3)
