"""Targets of which the source says little: the status has to say so."""

import pytest
import torch

from scda.adapt.config import TrainConfig
from scda.adapt.data.dataset import Labelled
from scda.adapt.discovery.findings import Status
from scda.adapt.training.algorithm import Adapted, adapt
from tests.adapt.discovery.two_domains import groups

KNOWN = [0, 1, 2, 3]
WARNINGS = {Status.WEAK_TRANSFER, Status.DOUBTFUL, Status.COLLAPSED}


def run(target_classes: list[int]) -> Adapted:
    source, labels = groups(KNOWN, 30, shift=0, seed=0)
    target, _ = groups(target_classes, 30, shift=0.5, seed=1)
    known = Labelled(torch.from_numpy(source), torch.from_numpy(labels))
    return adapt(known, torch.from_numpy(target), TrainConfig(pretrain_steps=100))


@pytest.mark.parametrize(
    ("target_classes", "warned"),
    [
        pytest.param(KNOWN, False, id="every known class"),
        pytest.param([10, 11, 12, 13], True, id="no known class"),
        pytest.param([0, 10, 11, 12], True, id="one known class and new ones"),
        pytest.param([0], True, id="one known class alone"),
    ],
)
def test_a_target_that_hardly_holds_known_classes_is_not_trusted(
    target_classes: list[int], warned: bool
) -> None:
    adapted = run(target_classes)
    statuses = {finding.status for finding in adapted.findings}
    assert bool(statuses & WARNINGS) == warned
    assert (adapted.trust.expected_accuracy <= 0.84) == warned
