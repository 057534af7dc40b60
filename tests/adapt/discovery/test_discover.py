import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from scda.adapt.discovery.discover import (
    Discovery,
    cluster_candidates,
    discover,
)
from scda.adapt.discovery.findings import Status
from scda.adapt.discovery.kmeans import cluster
from scda.adapt.discovery.matching import clustering_accuracy
from scda.adapt.discovery.selection import Candidates
from scda.models.index import Ids
from tests.adapt.discovery.blobs import blobs, config, logits_of, toy


@pytest.mark.parametrize("preset_fields", [{}, {"implicit_share": "half"}, {"assignment": "joint"}])
def test_discover_finds_the_hidden_classes(preset_fields: dict[str, Any]) -> None:
    logits, features = toy(3, 4)
    settings = config(k_method="scda", **preset_fields)
    found = discover(logits, features, features, num_known=3, config=settings)
    true = found.candidates.implicit // 20 - 3
    assert found.curve is not None
    mean = (found.curve.k_accuracy + found.curve.k_elbow) / 2
    assert found.k_star == math.ceil(mean) - 3
    assert set(found.implicit_labels.tolist()) == set(range(found.k_star))
    assert found.implicit_labels.dtype == np.int64
    assert all((true == true[found.implicit_labels == c][0]).sum() for c in range(found.k_star))
    if found.k_star == 4:
        assert clustering_accuracy(found.implicit_labels, true) == 1


def test_k_may_be_fixed() -> None:
    logits, features = toy(3, 4)
    for k in (1, 4, 6):
        found = discover(logits, features, features, num_known=3, config=config(k=k))
        assert (found.k_star, found.curve, found.votes) == (k, None, {})
    found = discover(logits, features, features, num_known=3, config=config(k=4))
    true = found.candidates.implicit // 20 - 3
    assert clustering_accuracy(found.implicit_labels, true) == 1


def test_a_fixed_k_is_no_larger_than_t_im() -> None:
    logits = logits_of([0] * 6 + [1] * 6 + [2] * 3, 3)
    features = np.random.default_rng(0).normal(size=(15, 4)).astype(np.float32)
    assert discover(logits, features, features, num_known=2, config=config(k=8)).k_star == 3


def test_nothing_predicted_as_new_takes_the_tenth_of_highest_entropy_and_says_so() -> None:
    certainty = np.linspace(2, 9, 40, dtype=np.float32)
    logits = np.stack([certainty, np.zeros(40), np.zeros(40)], axis=1).astype(np.float32)
    features = np.random.default_rng(0).normal(size=(40, 4)).astype(np.float32)
    found = discover(logits, features, features, num_known=2, config=config(novel="yes"))
    assert found.candidates.implicit.tolist() == [0, 1, 2, 3]
    assert not set(found.candidates.known.tolist()) & {0, 1, 2, 3}
    assert len(found.candidates.known) == len(found.candidates.known_labels) == 20
    assert found.k_star >= 1
    assert str(found.findings[0]).startswith("k unsure: no image was predicted as new; the tenth")


def test_an_image_that_stands_in_as_new_is_not_known_as_well() -> None:
    certainty = np.linspace(5, 9, 10, dtype=np.float32)
    logits = np.stack([certainty, np.zeros(10), np.zeros(10)], axis=1).astype(np.float32)
    logits[4] = [0, 0.1, 0]  # the only one predicted as 1, and the least certain of all
    features = np.random.default_rng(0).normal(size=(10, 4)).astype(np.float32)
    found = discover(logits, features, features, num_known=2, config=config(novel="yes"))
    assert found.candidates.implicit.tolist() == [4]
    assert found.candidates.known.tolist() == [5, 6, 7, 8, 9]
    assert found.candidates.known_labels.tolist() == [0] * 5


def test_nothing_predicted_as_new_among_a_few_images_is_k_star_0() -> None:
    logits = logits_of([0, 0, 1, 1], 3)
    found = discover(logits, blobs(4, each=1), blobs(4, each=1), num_known=2, config=config())
    assert (found.k_star, len(found.implicit_labels), found.curve) == (0, 0, None)
    assert [finding.status for finding in found.findings] == [Status.K_UNSURE]
    assert "or --novel yes if it does not" in found.findings[0].advice


@pytest.mark.parametrize("stated", [{"novel": "yes"}, {"k": 2}])
def test_what_was_stated_already_is_not_advised(stated: dict[str, Any]) -> None:
    logits, settings = logits_of([0, 0, 1, 1], 3), config(**stated)
    found = discover(logits, blobs(4, each=1), blobs(4, each=1), num_known=2, config=settings)
    (finding,) = found.findings
    assert "fewer than 10 images" in finding.found
    assert "--novel yes" not in finding.advice


@pytest.mark.parametrize("novel", ["auto", "no"])
def test_who_did_not_ask_for_new_classes_gets_none_out_of_nothing(novel: str) -> None:
    logits = logits_of([0, 1] * 50, 3)
    features = np.random.default_rng(0).normal(size=(100, 4)).astype(np.float32)
    found = discover(logits, features, features, num_known=2, config=config(novel=novel))
    assert (found.k_star, len(found.candidates.implicit)) == (0, 0)
    fixed = discover(logits, features, features, num_known=2, config=config(k=2))
    assert (fixed.k_star, len(fixed.candidates.implicit)) == (2, 10)


def test_fewer_classes_than_k_are_a_finding() -> None:
    logits, features = toy(3, 2)
    features[60:80], features[80:] = features[60], features[80]  # two distinct images are new
    found = discover(logits, features, features, num_known=3, config=config(k=5))
    assert found.k_star == 2
    assert [str(finding) for finding in found.findings] == [
        "fewer than asked for: the new images form 2 classes instead of --k 5; use a smaller --k"
    ]


def test_as_many_classes_as_k_are_no_finding() -> None:
    logits, features = toy(3, 2)
    assert discover(logits, features, features, num_known=3, config=config(k=5)).findings == ()


def test_given_candidates_are_clustered_as_they_are() -> None:
    features = blobs(5)
    candidates = Candidates(np.arange(60), np.repeat(np.arange(3), 20), np.arange(65, 95))
    settings = config(k_method="graph")
    found = cluster_candidates(candidates, features, features, num_known=3, config=settings)
    assert found.candidates is candidates
    assert (found.k_star, found.votes["graph"]) == (2, 2)
    assert clustering_accuracy(found.implicit_labels, candidates.implicit // 20 - 3) == 1
    assert (found.verdict, found.k_path) == (None, ())
    assert found.findings == ()


def test_one_image_of_t_im_is_one_class() -> None:
    features = blobs(4)
    candidates = Candidates(np.arange(60), np.repeat(np.arange(3), 20), np.array([70]))
    for fields in ({}, {"k": 4}, {"k_method": "graph"}, {"assignment": "joint"}):
        found = cluster_candidates(
            candidates, features, features, num_known=3, config=config(**fields)
        )
        assert (found.k_star, found.implicit_labels.tolist()) == (1, [0])


def test_k_star_is_no_larger_than_t_im() -> None:
    rng = np.random.default_rng(0)
    labels = [0] * 60 + [1] * 60 + [2]
    features = rng.normal(size=(121, 4)).astype(np.float32)
    found = discover(logits_of(labels, 3), features, features, num_known=2, config=config())
    assert found.k_star == 1
    assert found.implicit_labels.tolist() == [0]
    assert found.findings == ()


def test_joint_assignment_divides_by_the_clusters_of_the_union() -> None:
    logits, features = toy(3, 2)
    fields = {"assignment": "joint", "cluster_space": "features", "pca": 0, "k": 2}
    found = discover(logits, features, features, num_known=3, config=config(**fields))
    candidates = found.candidates
    points = np.concatenate([features[candidates.known], features[candidates.implicit]])
    union = cluster(points, 5, restarts=2, seed=0).labels[len(candidates.known) :]
    assert clustering_accuracy(found.implicit_labels, union) == 1
    assert found.k_star == 2


def test_a_known_class_without_images_takes_no_large_cluster_from_the_new() -> None:
    sizes = [20, 2, 20, 20, 2, 20]  # of the known class 0, and of five new groups
    groups = np.repeat(np.arange(6), sizes)
    rng = np.random.default_rng(0)
    features = (10 * np.eye(6)[groups] + rng.normal(0, 0.1, (84, 6))).astype(np.float32)
    logits = logits_of([0 if group == 0 else 3 for group in groups], 4)  # none is predicted 1 or 2
    fields = {"assignment": "joint", "cluster_space": "features", "k": 3}
    found = discover(logits, features, features, num_known=3, config=config(**fields))
    true = groups[found.candidates.implicit]
    large = [set(found.implicit_labels[true == group].tolist()) for group in (2, 3, 5)]
    assert sorted(map(list, large)) == [[0], [1], [2]]
    assert found.k_star == 3


def test_the_same_seed_discovers_the_same() -> None:
    rng = np.random.default_rng(0)
    logits = rng.normal(0, 2, (80, 5)).astype(np.float32)
    features = rng.normal(size=(80, 6)).astype(np.float32)
    one, two = (
        discover(logits, features, features, num_known=4, config=config()) for _ in range(2)
    )
    assert one.curve == two.curve
    np.testing.assert_array_equal(one.implicit_labels, two.implicit_labels)


def check_whole(found: Discovery, images: int) -> None:
    candidates = found.candidates
    both: NDArray[np.int64] = np.concatenate([candidates.known, candidates.implicit])
    assert len(set(both.tolist())) == len(both) <= images
    assert len(candidates.known) == len(candidates.known_labels)
    assert len(candidates.implicit) == len(found.implicit_labels)
    assert set(found.implicit_labels.tolist()) == set(range(found.k_star))


SPACES = ("backbone", "both", "features")
FIELDS: tuple[dict[str, Any], ...] = ({}, {"assignment": "joint"}, {"k": 3}, {"k": 3, "pca": 0})
# Every number of images with every space and all fields, and every space with all fields.
PAIRS = [
    (images, SPACES[(row + column) % 3], fields)
    for row, images in enumerate((2, 3, 4, 5, 24))
    for column, fields in enumerate(FIELDS)
]


@pytest.mark.parametrize(("images", "space", "fields"), PAIRS)
def test_tiny_equal_and_doubled_targets_never_crash(
    images: int, space: str, fields: dict[str, Any]
) -> None:
    rng = np.random.default_rng(images)
    varied = rng.normal(size=(images, 4)).astype(np.float32)
    for known in (2, 10):
        logits = rng.normal(0, 3, (images, known + 1)).astype(np.float32)
        surely = 20 * np.eye(known + 1, dtype=np.float32)
        for push in (np.zeros_like(surely[0]), surely[0], surely[known]):  # mixed, known, new
            for features in (varied, varied[np.zeros(images, int)], varied[np.arange(images) % 2]):
                found = discover(
                    logits + push,
                    features,
                    features,
                    num_known=known,
                    config=config(cluster_space=space, **fields),
                )
                check_whole(found, images)


def test_labels_are_whole_numbers() -> None:
    labels: Ids = discover(*toy(2, 2), blobs(4), num_known=2, config=config()).implicit_labels
    assert labels.dtype == np.int64
