import math
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from benchmarks.open_set import estimators
from benchmarks.open_set.estimators import Pretrained, constrained_kmeans
from benchmarks.open_set.studies import Request
from scda.adapt.config import TrainConfig

KNOWN, NEW, PER_CLASS = 6, 5, 24


@pytest.fixture(scope="module")
def separated() -> Pretrained:
    """11 Gaussians far apart, of which 6 are known and called so with certainty."""
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(KNOWN + NEW), PER_CLASS)
    centres = 20 * np.eye(KNOWN + NEW)
    features = (centres[labels] + rng.normal(0, 1, (len(labels), KNOWN + NEW))).astype(np.float32)
    logits = 5 * np.eye(KNOWN + 1)[np.minimum(labels, KNOWN)]
    logits += rng.normal(0, 0.1, logits.shape)
    config = TrainConfig(k_max=20, restarts=4)
    return Pretrained(logits.astype(np.float32), features, features, KNOWN, config)


@pytest.mark.parametrize("name", ["silhouette", "scda", "elbow"])
def test_separated_classes_are_counted(separated: Pretrained, name: str) -> None:
    assert abs(estimators.ESTIMATORS[name](separated) - NEW) <= 1


def test_the_accuracy_of_dtc_counts_separated_classes_and_its_silhouette_stops_early(
    separated: Pretrained,
) -> None:
    of_accuracy, of_silhouette = estimators.dtc_halves(separated)
    assert of_accuracy == NEW
    assert 1 <= of_silhouette <= NEW  # it does not see a new class in a known one's cluster
    assert estimators.dtc(separated) == math.ceil((of_accuracy + of_silhouette) / 2)


def test_estimators_answer_the_same_twice(separated: Pretrained) -> None:
    for estimate in (estimators.dtc, estimators.silhouette, estimators.accuracy):
        assert estimate(separated) == estimate(separated)


def points(*values: float) -> NDArray[np.float32]:
    return np.array(values, np.float32)[:, None]


def test_an_anchor_stays_in_its_class_wherever_it_lies() -> None:
    # The anchor at 10 pulls class 0's centroid to 5 and stays; the free 10 goes to the seed.
    labels, sse = constrained_kmeans(
        points(0, 10), np.array([0, 0]), points(10, 10.5, 0), points(10.2), steps=5
    )
    assert labels.tolist() == [1, 1, 0]
    centroid = 10 / 3  # of 0, 10 and the free 0
    assert sse == pytest.approx(2 * centroid**2 + (10 - centroid) ** 2 + 2 * 0.25**2)


def test_without_anchors_it_is_k_means() -> None:
    nothing = np.empty(0, np.int64)
    labels, sse = constrained_kmeans(
        np.empty((0, 1), np.float32), nothing, points(0, 1, 8, 9), points(0, 1), steps=10
    )
    assert labels.tolist() == [0, 0, 1, 1]
    assert sse == pytest.approx(1)


def test_every_estimator_runs_on_every_task(office31: Path, tmp_path: Path) -> None:
    request = Request(office31, "P1", "k", "robust", ("A-W", "D-A"), 2, tmp_path)
    runs = estimators.k_runs(request)
    assert len(runs) == len(estimators.ESTIMATORS) * 2 * 2
    assert {run.name["variant"] for run in runs} == estimators.ESTIMATORS.keys()
