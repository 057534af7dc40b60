import math

import numpy as np
import pytest

from scda.adapt.discovery.selection import Candidates
from scda.adapt.discovery.space import cluster_space, space_of
from tests.adapt.discovery.blobs import config


def test_the_backbone_is_balanced_and_both_spaces_side_by_side() -> None:
    rng = np.random.default_rng(0)
    features = rng.normal(3, 1, (12, 3)).astype(np.float32) * 1000
    backbone = rng.normal(-2, 1, (12, 5)).astype(np.float32)
    rows = np.array([7, 2, 3, 1, 9])
    parts = []
    for matrix in (features, backbone):
        unit = [row / np.linalg.norm(row) for row in matrix[rows].astype(np.float64)]
        centred = np.array([row - sum(unit) / len(unit) for row in unit])
        parts.append(centred / math.sqrt(sum(row @ row for row in centred) / len(rows)))
    for space, expected in (("both", np.hstack(parts)), ("backbone", parts[1])):
        settings = config(cluster_space=space, pca=0)
        points = cluster_space(features, backbone, rows, settings)
        np.testing.assert_allclose(points, expected, atol=1e-5)


def test_features_alone_are_taken_as_they_are() -> None:
    features = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
    rows, settings = np.array([4, 0, 2]), config(cluster_space="features", pca=0)
    space = cluster_space(features, features, rows, settings)
    np.testing.assert_array_equal(space, features[[4, 0, 2]])


@pytest.mark.parametrize(("pca", "expected"), [(0, 6), (3, 3), (64, 6)])
def test_pca_keeps_no_more_dimensions_than_there_are(pca: int, expected: int) -> None:
    features = np.random.default_rng(0).normal(size=(20, 6)).astype(np.float32)
    everything, few = np.arange(20), np.arange(4)
    fields = {"cluster_space": "features", "pca": pca}
    assert cluster_space(features, features, everything, config(**fields)).shape == (20, expected)
    assert cluster_space(features, features, few, config(**fields)).shape[1] == min(
        expected, 3 if pca else 6
    )


def test_surroundings_are_the_whole_target_with_the_candidates_first() -> None:
    features = np.arange(10, dtype=np.float32).reshape(5, 2)
    candidates = Candidates(np.array([4]), np.zeros(1, np.int64), np.array([0, 2]))
    settings = config(cluster_space="features", pca=0)
    space = space_of(features, features, candidates, num_known=1, config=settings, whole=True)
    np.testing.assert_array_equal(space.points, features[[4, 0, 2]])
    np.testing.assert_array_equal(space.surroundings, features[[4, 0, 2, 1, 3]])
    alone = space_of(features, features, candidates, num_known=1, config=settings, whole=False)
    assert alone.surroundings.shape == (0, 2)
