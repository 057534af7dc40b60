"""Target images that a person has labelled, which the source holds, too."""

import numpy as np
import pytest
import torch

from scda.adapt.data.dataset import Labelled
from scda.adapt.data.shared import Shared
from scda.adapt.discovery.findings import Status
from scda.adapt.training.algorithm import adapt
from scda.adapt.training.domains import Domains
from scda.adapt.training.networks import infer
from scda.adapt.training.runner import Callbacks
from scda.adapt.training.state import RunState
from tests.adapt.training.test_algorithm import HIDDEN, KNOWN, SOURCE, TARGET, config

QUICK = config(rounds=1, k_method="graph")
ROWS = torch.tensor([0, *(int((TARGET.labels == KNOWN).nonzero()[0]) + n for n in range(2))])


def labelled(rows: torch.Tensor = ROWS) -> tuple[Labelled, Shared]:
    """Return the source with these images of the target, whose features there are of no use."""
    features = torch.cat([SOURCE.features, torch.full((len(rows), SOURCE.features.shape[1]), 9.0)])
    labels = torch.cat([SOURCE.labels, TARGET.labels[rows]])
    given = np.full(len(TARGET.labels), -1)
    given[rows] = TARGET.labels[rows]
    in_source = np.arange(len(rows)) + len(SOURCE.labels)
    return Labelled(features, labels), Shared(in_source, rows.numpy(), given)


def test_a_new_class_is_found_by_the_few_images_that_are_labelled() -> None:
    source, shared = labelled()
    stages: list[RunState] = []
    adapted = adapt(
        source,
        TARGET.features,
        config(),
        shared=shared,
        callbacks=Callbacks(on_stage=stages.append),
    )
    predicted = infer(adapted.networks, TARGET.features)[0].argmax(dim=1)
    of_class = TARGET.labels == KNOWN
    assert (predicted[of_class] == KNOWN).float().mean() > 0.9
    assert (predicted[TARGET.labels > KNOWN] > KNOWN).float().mean() > 0.9
    assert adapted.discovery is not None
    assert adapted.discovery.k_star == HIDDEN - 1
    assert stages[0].unknown_share > 0.2  # of 0.4, before the class is found
    assert torch.equal(adapted.source.features[-len(ROWS) :], TARGET.features[ROWS])


def test_nothing_else_is_new_where_all_new_classes_are_labelled() -> None:
    rows = torch.stack([(TARGET.labels == KNOWN + n).nonzero()[0, 0] for n in range(HIDDEN)])
    source, shared = labelled(rows)
    adapted = adapt(source, TARGET.features, QUICK, shared=shared)
    predicted = infer(adapted.networks, TARGET.features)[0].argmax(dim=1)
    assert (predicted == TARGET.labels).float().mean() > 0.9
    assert adapted.discovery is not None
    assert adapted.discovery.k_star == 0
    assert Status.NOTHING_NEW in [finding.status for finding in adapted.findings]


@pytest.mark.parametrize("preset", ["robust", "paper"])
def test_shared_images_are_images_of_the_target_everywhere(preset: str) -> None:
    source, shared = labelled()
    alone = Domains(SOURCE, TARGET.features, config(preset))
    both = Domains(source, TARGET.features, config(preset), shared=shared)
    inputs = both.inputs.source_features(torch.nn.Identity())
    assert torch.equal(inputs[-len(ROWS) :], both.target[ROWS])
    if preset == "robust":
        # The image of a known class is learnt with its class; those of a new one are not learnt.
        assert len(both.source.labels) == len(alone.source.labels) + 1
        assert both.source.labels[-1] == TARGET.labels[ROWS[0]]
        assert torch.equal(both.source.features[-1], both.target[ROWS[0]])
        assert np.array_equal(both.points[0][-1], both.points[1][ROWS[0]])
        assert both.num_first == KNOWN
        assert both.num_known == KNOWN + 1


def test_a_labelled_image_has_one_place_by_the_classes_of_the_pretraining_too() -> None:
    source, shared = labelled()
    torch.manual_seed(0)
    classifier = torch.nn.Linear(SOURCE.features.shape[1], 40)
    target = TARGET.features + 1
    domains = Domains(source, target, config(), classifier=classifier, shared=shared)
    assert domains.points[0].shape[1] > domains.whitened[0].shape[1]
    assert np.array_equal(domains.points[0][-1], domains.points[1][ROWS[0]])


def test_nothing_changes_without_shared_images() -> None:
    domains = Domains(SOURCE, TARGET.features, config())
    points = domains.points[0]
    assert domains.first is None
    assert domains.with_shared(*domains.points) is points
    assert domains.num_first == domains.num_known == KNOWN
    assert domains.source_features(torch.nn.Identity()).data_ptr() == SOURCE.features.data_ptr()
