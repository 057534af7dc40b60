import numpy as np
import pytest

from scda.adapt.config import TrainConfig
from scda.adapt.discovery.anchors import keep_apart
from scda.adapt.discovery.discover import discover
from tests.adapt.discovery.blobs import blobs

# Two groups of points near each other, and one far away.
POINTS = np.array([[0, 0], [0, 1], [4, 0], [4, 1], [50, 0], [50, 1], [1, 0], [3, 0]], np.float32)
UNITED = np.array([0, 0, 0, 0, 1, 1, 0, 0])


def test_a_cluster_of_two_anchored_classes_is_divided_and_new_images_go_to_the_nearer() -> None:
    anchors = np.array([7, 7, 3, 3, -1, -1, -1, -1])
    labels = keep_apart(POINTS, UNITED, anchors)
    assert labels[0] == labels[1] == labels[6]
    assert labels[2] == labels[3] == labels[7]
    assert len({labels[0], labels[2], labels[4]}) == 3
    assert sorted(set(labels.tolist())) == [0, 1, 2]


@pytest.mark.parametrize(
    ("anchors", "clusters"),
    [
        ([-1, -1, -1, -1, -1, -1, -1, -1], UNITED),
        ([7, 7, 7, 7, 3, 3, -1, -1], UNITED),  # one class each
        ([7, 7, 3, -1, -1, -1, -1, -1], UNITED),  # a single image of the other
        ([7, 7, 3, 3, 3, 3, -1, -1], [0, 0, 0, 1, 1, 1, 0, 0]),  # most of it is elsewhere
    ],
)
def test_other_clusters_stay_as_they_are(anchors: list[int], clusters: list[int]) -> None:
    assert keep_apart(POINTS, np.array(clusters), np.array(anchors)).tolist() == list(clusters)


def test_a_discovery_keeps_them_apart_unless_the_user_gave_k() -> None:
    features, logits = blobs(3), np.zeros((len(blobs(3)), 3), np.float32)
    logits[:, 0] = 5  # the first blob is known
    each = len(features) // 3
    logits[each:] = [0, 0, 5]
    anchors = np.repeat([-1, 0, 1], each)
    estimated = TrainConfig(k_max=1, novel="yes")
    one = discover(logits, features, features, num_known=2, config=estimated)
    assert one.k_star == 1
    kept = discover(logits, features, features, num_known=2, config=estimated, anchors=anchors)
    assert kept.k_star == 2
    given = TrainConfig(k=1, novel="yes")
    fixed = discover(logits, features, features, num_known=2, config=given, anchors=anchors)
    assert fixed.k_star == 1
