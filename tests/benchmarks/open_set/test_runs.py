from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from benchmarks.open_set import runs
from benchmarks.open_set.protocols import Lists
from benchmarks.open_set.runs import (
    REJECTIONS,
    Run,
    Trained,
    inputs_of,
    measure,
    percent,
    scores,
    trade_off,
)
from scda.adapt.config import TrainConfig
from scda.adapt.discovery.findings import Finding, Status
from scda.adapt.evaluation.metrics import open_set
from scda.models.trust import Trust

QUICK = TrainConfig(head_widths=(8,), pretrain_steps=3, round_steps=3, rounds=2, novel="yes")


def made(*, truth: tuple[int, ...] | None = None) -> tuple[Lists, dict[Path, NDArray[np.float32]]]:
    """Two known classes of 8 images; the target holds them and a third class."""
    labels = tuple(np.repeat([0, 1], 8).tolist())
    right = tuple(np.repeat([0, 1, 2], 8).tolist())
    source = tuple(Path(f"source/{row}") for row in range(16))
    target = tuple(Path(f"target/{row}") for row in range(24))
    rng = np.random.default_rng(0)
    rows = zip(source + target, labels + right, strict=True)
    features = {
        path: (4 * np.eye(4)[label] + rng.normal(0, 0.3, 4)).astype(np.float32)
        for path, label in rows
    }
    return Lists(source, labels, target, truth or right, 2), features


def test_features_follow_the_lists_and_may_repeat() -> None:
    lists, features = made()
    repeated = Lists(lists.source, lists.labels, lists.target + lists.target[:2], (), 2)
    inputs = inputs_of(repeated, features)
    assert inputs.source.labels.tolist() == list(lists.labels)
    torch.testing.assert_close(inputs.target[-2:], inputs.target[:2])
    torch.testing.assert_close(inputs.source.features[3], torch.tensor(features[lists.source[3]]))


def test_the_truth_changes_the_scores_and_never_what_is_trained() -> None:
    lists, features = made()
    other = Lists(lists.source, lists.labels, lists.target, (2,) * len(lists.truth), 2)
    trained = [runs.train(inputs_of(each, features), QUICK) for each in (lists, other)]
    np.testing.assert_array_equal(trained[0].probabilities, trained[1].probabilities)
    first, second = (
        scores(outcome, np.array(each.truth), 2)
        for outcome, each in zip(trained, (lists, other), strict=True)
    )
    assert first["k_per_round"] == second["k_per_round"]
    assert first["accuracy"] != second["accuracy"]


def test_a_run_has_its_name_and_every_field_of_the_contract() -> None:
    lists, features = made()
    name = {"method": "scda", "task": "A-W"}
    record = measure(Run(name, lists, QUICK), inputs_of(lists, features))
    assert record.items() >= name.items()
    wanted = (
        "os os_star unk_pooled unk_macro hos nmi_implicit ari_implicit acc_joint acc_novel "
        "h3_oracle h3_model k_star k_true k_signed k_abs correspondence_1 correspondence_3 "
        "correspondence_5 seconds auroc accuracy known_share status hos_before os_per_round "
        "hos_per_round k_per_round rejection"
    )
    assert set(wanted.split()) <= record.keys()
    assert len(record["os_per_round"]) == len(record["k_per_round"]) == 3
    assert record["os_per_round"][-1] == record["os"]
    assert record["hos_per_round"][0] == record["hos_before"]
    assert record["k_per_round"][-1] == record["k_star"]


def test_scores_of_a_case_worked_by_hand() -> None:
    before, after = np.array([2, 2, 1, 2, 2]), np.array([0, 2, 1, 2, 0])
    truth = np.array([0, 0, 1, 2, 2])
    probabilities = np.eye(3, dtype=np.float32)[after]
    rounds, findings = [before, after], [Finding(Status.K_UNSURE, "why", "inspect")]
    near, trust = np.empty((5, 0), np.int64), Trust(expected_accuracy=0.75, low=0.7, high=0.8)
    trained = Trained(probabilities, probabilities, near, rounds, [1, 1], findings, trust, 1.234)
    record = scores(trained, truth, 2)
    assert record["os_star"] == 75.0  # classes 0 and 1: 1/2 and 1
    assert record["unk_pooled"] == 50.0
    assert record["accuracy"] == 60.0  # rows 0, 2 and 3
    assert record["known_share"] == 66.67  # two of three known images
    assert record["auroc"] == 58.33  # novelty_score 0 1 0 of known, 1 0 of new: 3.5 of 6 pairs
    assert record["hos_before"] == 66.67  # OS* 50, UNK 100
    assert record["os_per_round"] == [66.67, 66.67]
    assert record["status"] == ["k unsure"]
    assert (record["expected_accuracy"], record["known_accuracy"]) == (75, 66.67)
    assert (record["k_star"], record["k_true"], record["seconds"]) == (1, 1, 1.23)


@pytest.mark.parametrize(("truth", "share"), [([0, 1, 2], 0.5), ([2, 3, 2], 0.0)])
def test_known_share_is_of_known_images_alone(truth: list[int], share: float) -> None:
    assert runs.known_share(np.array(truth), np.array([1, 2, 0]), 2) == share


def test_rejection_moves_images_one_way_only() -> None:
    rng = np.random.default_rng(0)
    probabilities = rng.dirichlet(np.ones(4), 200).astype(np.float32)
    truth = rng.integers(0, 4, 200)
    curve = trade_off(probabilities, truth, 2)
    assert list(curve) == [str(nats) for nats in REJECTIONS]
    stars, unknown = zip(*curve.values(), strict=True)
    assert list(stars) == sorted(stars, reverse=True)
    assert list(unknown) == sorted(unknown)
    as_it_is = open_set(truth, probabilities.argmax(axis=1), 2)
    assert curve["0"] == [percent(as_it_is["os_star"]), percent(as_it_is["unk_pooled"])]
    assert stars[0] > stars[-1]


def test_rejection_worked_by_hand() -> None:
    probabilities = np.array([[0.5, 0.5 / np.e**1.5], [0.1, 0.9]], np.float32)
    curve = trade_off(probabilities, np.array([0, 1]), 1)
    assert (curve["1"], curve["2"]) == ([100.0, 100.0], [0.0, 100.0])
    assert curve["-2"] == [100.0, 100.0]
    assert curve["-4"] == [100.0, 0.0]
