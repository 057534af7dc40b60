import numpy as np
import torch

from benchmarks.open_set.runs import Inputs
from benchmarks.suites.estimate import knn_agree
from scda.adapt.data.dataset import Labelled


def inputs(shift: float = 0.0) -> Inputs:
    """Two classes of six source images along one axis, and two target images of each."""
    rng = np.random.default_rng(0)
    axis = np.array([[1.0, 0, 0, 0], [-1.0, 0, 0, 0]], np.float32)
    source = np.repeat(axis, 6, axis=0) + rng.normal(0, 0.1, (12, 4)).astype(np.float32)
    target = np.repeat(axis, 2, axis=0) + np.float32(shift)
    labels = torch.arange(2).repeat_interleave(6)
    return Inputs(Labelled(torch.from_numpy(source), labels), torch.from_numpy(target))


def test_the_share_of_known_predictions_that_neighbours_confirm() -> None:
    assert knn_agree(inputs(), np.array([0, 0, 1, 1])) == 1
    assert knn_agree(inputs(), np.array([0, 1, 1, 1])) == 0.75
    assert knn_agree(inputs(), np.array([0, 1, 2, 3])) == 0.5  # discovered classes do not count


def test_a_shift_of_the_whole_domain_does_not_count() -> None:
    assert knn_agree(inputs(shift=5.0), np.array([0, 0, 1, 1])) == 1


def test_it_is_undefined_where_nothing_is_predicted_known() -> None:
    assert knn_agree(inputs(), np.array([2, 2, 3, 2])) is None
