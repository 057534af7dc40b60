import random
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from numpy.typing import NDArray

from scda.adapt.config import TrainConfig
from scda.adapt.data.dataset import job_backbone, read_data
from scda.adapt.data.scan import scan_source, scan_target
from scda.adapt.pipeline.arrays import Adaptation, adapt
from scda.adapt.runtime.progress import Reporter
from scda.models.errors import DataError, UsageError
from tests.conftest import TinyData

FAST = TrainConfig(pretrain_steps=40, round_steps=20, batch_size=16, novel="yes", k_max=5)
WIDTH = 8


def blobs(count: int, *, seed: int = 0) -> NDArray[np.float64]:
    """Return `count` classes of 30 images each, far apart, (30 * count, WIDTH)."""
    centres = 6 * np.eye(count, WIDTH).repeat(30, axis=0)
    noise: NDArray[np.float64] = np.random.default_rng(seed).normal(size=(30 * count, WIDTH))
    return centres + noise


LABELS = np.repeat(["dog", "cat"], 30)


@pytest.fixture(scope="module")
def result() -> Adaptation:
    return adapt(blobs(2), LABELS, blobs(4, seed=1), config=FAST)


def test_classes_are_those_of_the_labels_and_the_discovered_ones(result: Adaptation) -> None:
    assert list(result.known_classes) == ["cat", "dog"]
    assert result.class_ids[:3] == ("known-000", "known-001", "discovered-000")
    assert len(result.class_ids) == 2 + result.k_star
    assert result.k_star > 0
    named = result.known_classes[result.predictions[:60] % 2]
    assert (named == LABELS).mean() > 0.9
    assert (result.predictions[60:] >= 2).mean() > 0.9


def test_arrays_fit_together(result: Adaptation) -> None:
    assert result.predictions.shape == (120,)
    assert result.probabilities.shape == (120, 2 + result.k_star)
    assert result.features.shape == (120, FAST.head_widths[-1])
    np.testing.assert_allclose(result.probabilities.sum(axis=1), 1, atol=1e-5)
    np.testing.assert_array_equal(result.probabilities.argmax(axis=1), result.predictions)
    known = result.probabilities[:, :2].sum(axis=1)
    np.testing.assert_allclose(result.unknown_probability, 1 - known, atol=1e-5)
    expected = f"<scda.Adaptation: 120 images, 2 known classes, k_star={result.k_star}>"
    assert repr(result) == expected


def test_it_is_what_a_run_does_with_the_features_of_its_images(
    tiny: TinyData, tiny_run: Path
) -> None:
    job = tiny.job(tiny_run)
    source, target = scan_source(job.source), scan_target(job.target)
    with Reporter(quiet=True) as reporter:
        data = read_data(job, source, target, job_backbone(job.config), reporter)
    found = adapt(data.source.features, data.source.labels, data.target, config=job.config)
    rows = pq.read_table(tiny_run / "bundle" / "neighbours.parquet").to_pylist()
    of_run = {row["path"]: row["class_id"] for row in rows}
    ours = [found.class_ids[label] for label in found.predictions]
    assert dict(zip(data.target_images.names(), ours, strict=True)) == of_run


def test_the_process_is_left_as_it_was_and_the_seed_decides(result: Adaptation) -> None:
    random.seed(5)
    np.random.seed(5)
    torch.manual_seed(5)
    threads = torch.get_num_threads()
    expected = random.random(), np.random.random(), torch.rand(1).item()
    random.seed(5)
    np.random.seed(5)
    torch.manual_seed(5)
    again = adapt(blobs(2), LABELS, blobs(4, seed=1), config=FAST)
    assert (random.random(), np.random.random(), torch.rand(1).item()) == expected
    assert torch.get_num_threads() == threads
    np.testing.assert_array_equal(again.probabilities, result.probabilities)


def test_it_runs_in_another_thread(result: Adaptation) -> None:
    found: list[Adaptation] = []
    arguments = (blobs(2), LABELS, blobs(4, seed=1))
    thread = threading.Thread(target=lambda: found.append(adapt(*arguments, config=FAST)))
    thread.start()
    thread.join()
    np.testing.assert_array_equal(found[0].predictions, result.predictions)


def test_the_arrays_given_are_not_changed() -> None:
    source, target = blobs(2).astype(np.float32), blobs(3).astype(np.float32)
    before = source.copy(), target.copy()
    adapt(source, LABELS, target, config=FAST)
    np.testing.assert_array_equal(source, before[0])
    np.testing.assert_array_equal(target, before[1])


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"labels": LABELS[:-1]}, UsageError, r"labels are \(59,\); expected \(60,\)"),
        ({"target_features": blobs(3)[:, :5]}, UsageError, "are 5 wide; expected 8"),
        ({"features": blobs(2)[0]}, UsageError, r"features are \(8,\)"),
        ({"target_features": [["a"]]}, UsageError, "target_features: could not convert"),
        ({"target_features": np.full((4, WIDTH), np.nan)}, DataError, "not finite"),
        ({"labels": np.zeros(60)}, DataError, "1 classes and 90 target images"),
        ({"target_features": blobs(1)[:1]}, DataError, "2 classes and 1 target images"),
        ({"config": TrainConfig(finetune="all")}, UsageError, "expected 'none', or scda.train"),
    ],
)
def test_bad_input_is_refused_with_what_was_expected(
    changes: dict[str, Any], error: type[Exception], message: str
) -> None:
    given: dict[str, Any] = {"features": blobs(2), "labels": LABELS, "target_features": blobs(3)}
    with pytest.raises(error, match=message):
        adapt(**{**given, "config": FAST, **changes})
