from itertools import permutations

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score

from scda.adapt.discovery.kmeans import cluster
from scda.adapt.evaluation.metrics import (
    Labels,
    acc_joint,
    acc_novel,
    auroc,
    correspondence,
    h3,
    harmonic_mean,
    implicit_agreement,
    open_set,
)
from scda.models.index import normalised

# Two known classes (0, 1) and two implicit ones (2, 3); the model found 2, 3 and 4.
TRUE = np.array([0, 0, 0, 0, 1, 1, 2, 2, 2, 3])
PREDICTED = np.array([0, 0, 0, 1, 1, 2, 3, 3, 0, 2])


def random_labels(seed: int) -> tuple[Labels, Labels, int]:
    rng = np.random.default_rng(seed)
    known = int(rng.integers(1, 4))
    true = rng.integers(0, known + int(rng.integers(0, 4)), 30)
    predicted = rng.integers(0, known + int(rng.integers(0, 4)), 30)
    guided = rng.random(30) < 0.5
    predicted[guided] = np.minimum(true[guided], predicted.max())
    return true, predicted, known


def open_set_by_hand(true: list[int], predicted: list[int], num_known: int) -> dict[str, float]:
    def share(values: list[bool]) -> float:
        return sum(values) / len(values) if values else 0.0

    pairs = list(zip(true, predicted, strict=True))
    recalls = [
        share([p == label for t, p in pairs if t == label])
        for label in range(num_known)
        if label in true
    ]
    per_class = [
        share([p >= num_known for t, p in pairs if t == label])
        for label in sorted({t for t in true if t >= num_known})
    ]
    os_star = sum(recalls) / len(recalls) if recalls else 0.0
    pooled = share([p >= num_known for t, p in pairs if t >= num_known])
    return {
        "os": (num_known * os_star + pooled) / (num_known + 1),
        "os_star": os_star,
        "unk_pooled": pooled,
        "unk_macro": sum(per_class) / len(per_class) if per_class else 0.0,
        "hos": 2 * os_star * pooled / (os_star + pooled) if os_star + pooled else 0.0,
    }


def best_match_by_hand(pairs: list[tuple[int, int]]) -> int:
    """The most pairs that agree when outputs are renamed to classes, one to one."""
    size = max((max(pair) for pair in pairs), default=-1) + 1
    return max(sum(names[p] == t for t, p in pairs) for names in permutations(range(size)))


def correspondence_by_hand(
    true: list[int], predicted: list[int], confidence: list[float], num_known: int, n: int
) -> int:
    found = set()
    for label in set(predicted):
        if label < num_known:
            continue
        members = [i for i in range(len(true)) if predicted[i] == label]
        members.sort(key=lambda i: (-confidence[i], i))
        for i in members[:n]:
            if true[i] >= num_known:
                found.add(true[i])
    return len(found)


ALL = 100  # more outputs than any case has


def test_open_set_by_hand() -> None:
    shares = open_set(TRUE, PREDICTED, 2)
    assert shares["os_star"] == pytest.approx((3 / 4 + 1 / 2) / 2)  # 0.625
    assert shares["unk_pooled"] == pytest.approx(3 / 4)  # of all implicit images
    assert shares["unk_macro"] == pytest.approx((2 / 3 + 1) / 2)
    assert shares["os"] == pytest.approx((2 * 0.625 + 0.75) / 3)
    assert shares["hos"] == pytest.approx(2 * 0.625 * 0.75 / (0.625 + 0.75))


@pytest.mark.parametrize("seed", range(25))
def test_open_set_is_its_definition(seed: int) -> None:
    true, predicted, known = random_labels(seed)
    expected = open_set_by_hand(true.tolist(), predicted.tolist(), known)
    assert open_set(true, predicted, known) == pytest.approx(expected)


def test_a_known_class_without_images_is_skipped() -> None:
    true, predicted = np.array([0, 0, 2, 3]), np.array([0, 1, 2, 3])
    shares = open_set(true, predicted, 3)
    assert shares["os_star"] == pytest.approx((1 / 2 + 1) / 2)
    assert shares["os"] == pytest.approx((3 * 0.75 + 1) / 4)  # K still counts it


def test_without_implicit_images_unk_and_hos_are_0() -> None:
    shares = open_set(np.array([0, 1]), np.array([0, 1]), 2)
    assert (shares["os_star"], shares["unk_pooled"], shares["unk_macro"]) == (1, 0, 0)
    assert shares["hos"] == 0
    assert shares["os"] == pytest.approx(2 / 3)


def test_without_known_images_os_star_and_hos_are_0() -> None:
    shares = open_set(np.array([2, 3]), np.array([2, 2]), 2)
    assert (shares["os_star"], shares["unk_pooled"], shares["hos"]) == (0, 1, 0)


def test_which_discovered_class_makes_no_difference_to_the_open_set_shares() -> None:
    renamed = np.where(PREDICTED >= 2, 2, PREDICTED)
    assert open_set(TRUE, renamed, 2) == open_set(TRUE, PREDICTED, 2)


def test_harmonic_mean_of_equal_values_is_the_value_and_0_absorbs() -> None:
    assert harmonic_mean(0.6, 0.6, 0.6) == pytest.approx(0.6)
    assert harmonic_mean(0.5, 1.0) == pytest.approx(2 / 3)
    assert harmonic_mean(0.9, 0.0) == 0


def test_auroc_is_the_share_of_pairs_in_the_right_order() -> None:
    novelty_score = np.array([0.1, 0.2, 0.6, 0.5, 0.0, 0.3, 0.9, 0.5, 0.2, 0.7], np.float32)
    pairs = [(new, old) for new in novelty_score[TRUE >= 2] for old in novelty_score[TRUE < 2]]
    right = sum(1.0 if new > old else 0.5 if new == old else 0.0 for new, old in pairs)
    assert auroc(TRUE, novelty_score, 2) == pytest.approx(right / len(pairs))


@pytest.mark.parametrize("true", [[0, 1, 1], [2, 3, 2]])
def test_auroc_of_one_kind_alone_is_0(true: list[int]) -> None:
    assert auroc(np.array(true), np.array([0.1, 0.5, 0.9], np.float32), 2) == 0


def test_agreement_looks_at_implicit_images_only() -> None:
    expected = implicit_agreement(TRUE, PREDICTED, 2)
    shuffled = PREDICTED.copy()
    shuffled[TRUE < 2] = 4
    assert implicit_agreement(TRUE, shuffled, 2) == expected
    assert expected["nmi_implicit"] == pytest.approx(
        normalized_mutual_info_score([2, 2, 2, 3], [3, 3, 0, 2])
    )
    assert expected["ari_implicit"] == pytest.approx(
        adjusted_rand_score([2, 2, 2, 3], [3, 3, 0, 2])
    )


def test_agreement_keeps_known_predictions_apart() -> None:
    true, apart, together = np.array([2, 2, 3, 3]), np.array([2, 2, 0, 1]), np.array([2, 2, 3, 3])
    assert implicit_agreement(true, together, 2)["nmi_implicit"] == pytest.approx(1)
    assert implicit_agreement(true, apart, 2)["nmi_implicit"] < 1


def test_agreement_without_implicit_images_is_0() -> None:
    labels = np.array([0, 1])
    assert implicit_agreement(labels, labels, 2) == {"nmi_implicit": 0, "ari_implicit": 0}


@pytest.mark.parametrize("seed", range(15))
def test_acc_joint_is_the_best_renaming_of_all_outputs(seed: int) -> None:
    true, predicted, _ = random_labels(seed)
    pairs = list(zip(true.tolist(), predicted.tolist(), strict=True))
    assert acc_joint(true, predicted, ALL) == pytest.approx(best_match_by_hand(pairs) / len(true))


@pytest.mark.parametrize("seed", range(15))
def test_acc_novel_is_the_best_renaming_of_discovered_outputs(seed: int) -> None:
    true, predicted, known = random_labels(seed)
    implicit = [
        (t, p) for t, p in zip(true.tolist(), predicted.tolist(), strict=True) if t >= known
    ]
    found = [(t - known, p - known) for t, p in implicit if p >= known]
    expected = best_match_by_hand(found) / len(implicit) if implicit else 0
    assert acc_novel(true, predicted, known, ALL) == pytest.approx(expected)


def test_acc_joint_may_rename_a_known_output_and_acc_novel_may_not() -> None:
    # All images of the implicit class 1 are called by the known output 0, and the other way round.
    true, predicted = np.array([0, 0, 1, 1]), np.array([1, 1, 0, 0])
    assert acc_joint(true, predicted, ALL) == 1
    assert acc_novel(true, predicted, 1, ALL) == 0


def test_left_over_discovered_classes_count_as_wrong() -> None:
    assert acc_novel(np.array([1, 1, 1, 1]), np.array([1, 2, 2, 3]), 1, ALL) == pytest.approx(1 / 2)


def test_acc_novel_counts_implicit_images_called_known_as_wrong() -> None:
    assert acc_novel(np.array([1, 1, 2, 2]), np.array([0, 2, 1, 1]), 1, ALL) == pytest.approx(3 / 4)


def test_h3_is_the_harmonic_mean_of_three_shares() -> None:
    rng = np.random.default_rng(0)
    directions = np.array([[1, 0, 0], [0, 1, 0]], np.float32)
    features = rng.normal(0, 0.02, (10, 3)).astype(np.float32)
    features[6:9] += directions[0]
    features[9:] += directions[1]
    result = h3(TRUE, PREDICTED, features, 2)
    own = normalized_mutual_info_score([2, 2, 2, 3], [3, 3, 0, 2])
    assert result["h3_oracle"] == pytest.approx(3 / (1 / 0.625 + 1 / 0.75 + 1))
    assert result["h3_model"] == pytest.approx(3 / (1 / 0.625 + 1 / 0.75 + 1 / own))


def test_h3_clusters_directions_and_not_lengths() -> None:
    lengths = np.array([0.1, 1, 10, 100], np.float32)
    features = np.concatenate([np.outer(lengths, axis) for axis in np.eye(2, 4)]).astype(np.float32)
    known = np.ones((2, 4), np.float32)
    true = np.array([1] * 4 + [2] * 4 + [0, 0])
    result = h3(true, true, np.concatenate([features, known]), 1)
    assert result == pytest.approx({"h3_oracle": 1, "h3_model": 1})


def test_h3_takes_spherical_k_means_of_directions_at_the_true_number() -> None:
    rng = np.random.default_rng(11)
    true = rng.integers(0, 5, 60)
    directions = rng.normal(0, 1, (60, 4))
    features = (directions * rng.uniform(0.1, 3, (60, 1))).astype(np.float32)
    implicit = true >= 2
    points = normalised(features[implicit])
    agreement = [
        normalized_mutual_info_score(
            true[implicit], cluster(rows, 3, restarts=10, seed=0, spherical=spherical).labels
        )
        for rows, spherical in ((points, True), (points, False), (features[implicit], True))
    ]
    assert len({round(value, 3) for value in agreement}) == 3
    assert h3(true, true, features, 2)["h3_oracle"] == pytest.approx(3 / (2 + 1 / agreement[0]))


def test_h3_without_implicit_images_is_0() -> None:
    labels = np.array([0, 1])
    assert h3(labels, labels, np.eye(2, dtype=np.float32), 2) == {"h3_oracle": 0, "h3_model": 0}


def confidences(seed: int, count: int) -> NDArray[np.float32]:
    coarse = np.random.default_rng(seed).integers(0, 4, count) / 4  # with ties
    return coarse.astype(np.float32)


@pytest.mark.parametrize("n", [1, 3, 5, 100])
@pytest.mark.parametrize("seed", range(8))
def test_correspondence_is_its_definition(seed: int, n: int) -> None:
    true, predicted, known = random_labels(seed)
    confidence = confidences(seed, len(true))
    expected = correspondence_by_hand(
        true.tolist(), predicted.tolist(), confidence.tolist(), known, n
    )
    assert correspondence(true, predicted, confidence, range(known, ALL), n) == expected


def test_correspondence_looks_at_the_surest_images_of_every_discovered_class() -> None:
    true = np.array([2, 3, 0, 4, 2])
    predicted = np.array([2, 2, 2, 3, 3])
    confidence = np.array([0.5, 0.6, 0.9, 0.4, 0.3], np.float32)
    # A known image is the surest of the first class: it hides one, and is itself not counted.
    assert [correspondence(true, predicted, confidence, range(2, ALL), n) for n in (1, 2, 3)] == [
        1,
        3,
        3,
    ]


def test_correspondence_breaks_ties_by_the_images_order() -> None:
    true, predicted = np.array([2, 3, 2, 2]), np.array([2, 2, 3, 3])
    same = np.full(4, 0.5, np.float32)
    assert correspondence(true, predicted, same, range(2, ALL), 1) == 1
    assert correspondence(true[::-1], predicted[::-1], same, range(2, ALL), 1) == 2


def test_correspondence_of_nothing_discovered_is_0() -> None:
    assert correspondence(TRUE, np.zeros_like(TRUE), np.ones(10, np.float32), range(2, ALL), 5) == 0


def test_outputs_that_stand_for_no_class_are_wrong_everywhere() -> None:
    true = np.array([0, 1, 1, 2, 2])
    predicted = np.array([0, 1, 1, 3, 3])  # 3 is what dropped classes answer
    sure = np.ones(5, np.float32)
    assert acc_novel(true, predicted, 1, 4) == 1
    assert acc_novel(true, predicted, 1, 3) == pytest.approx(1 / 2)
    assert acc_joint(true, predicted, 3) == pytest.approx(3 / 5)
    assert acc_joint(true, predicted, 0) == 0
    assert correspondence(true, predicted, sure, range(1, 3), 1) == 1
