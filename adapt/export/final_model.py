"""The final model of a run: its classes in output order, and their statistics in the target."""

from dataclasses import dataclass, replace
from itertools import islice

import numpy as np
import torch
from torch import Tensor, nn

from scda.adapt.continuity.ids import fresh_ids
from scda.adapt.discovery.discover import Discovery
from scda.adapt.discovery.trust.classes import trust_classes
from scda.adapt.discovery.trust.confidence import calibrate
from scda.adapt.export.class_figures import ClassFigures, spread
from scda.adapt.training.algorithm import Adapted
from scda.adapt.training.networks import Networks, infer
from scda.models.index import Ids
from scda.models.networks.network import Tempered


@dataclass(frozen=True, kw_only=True)
class FinalModel(ClassFigures):
    """Trained networks and their predictions for the target; classes are in output order."""

    networks: Networks  # C ends with the calibration
    discovery: Discovery | None  # discovery of the last round, numbered like the outputs


def final_model(adapted: Adapted, class_names: list[str]) -> FinalModel:
    """Return the final model, with the discovered classes numbered by falling size.

    Args:
        adapted: Result of the training.
        class_names: Names of the known classes, in the order of their labels.
    """
    source, target, num_known = adapted.source, adapted.target, len(class_names)
    networks, discovery = _sorted_by_size(adapted, target, num_known)
    logits, features = infer(networks, target)
    predicted, source_labels = logits.argmax(dim=1).numpy(), source.labels.numpy()
    source_features = infer(networks, source.features)[1].numpy()
    features_of = {"target": features.numpy(), "source": source_features}
    members = [
        _members(label, predicted, source_labels, discovery, num_known)
        for label in range(logits.shape[1])
    ]
    centroids, distances = spread([features_of[domain][rows] for domain, rows in members])
    near = adapted.outcome.near
    found = trust_classes(predicted, near, centroids, num_known)
    class_ids = _first_ids(num_known, logits.shape[1])
    calibration = calibrate(logits.numpy(), near, class_ids, num_known, trust=adapted.trust)
    tempered = Tempered(torch.tensor([calibration.temperature[i] for i in class_ids]))
    return FinalModel(
        networks=replace(networks, classifier=nn.Sequential(networks.classifier, tempered)),
        class_names=class_names,
        discovery=discovery,
        probabilities=tempered(logits).softmax(dim=1).numpy(),
        features=features_of["target"],
        centroids=centroids,
        members=members,
        distances=distances,
        trust=found,
        calibration=calibration,
        class_ids=class_ids,
    )


def _first_ids(num_known: int, num_outputs: int) -> list[str]:
    """Return the ids of a model that is trained after no other one."""
    known, discovered = fresh_ids("known"), fresh_ids("discovered")
    return [*islice(known, num_known), *islice(discovered, num_outputs - num_known)]


def _sorted_by_size(
    adapted: Adapted, target: Tensor, num_known: int
) -> tuple[Networks, Discovery | None]:
    """Return C and the pseudo-labels with the discovered classes sorted by falling size."""
    networks, discovery = adapted.networks, adapted.discovery
    predicted = infer(networks, target)[0].argmax(dim=1)
    classifier = networks.classifier
    assert isinstance(classifier, nn.Linear)
    sizes = predicted.bincount(minlength=classifier.out_features)[num_known:].numpy()
    order = np.argsort(-sizes, kind="stable")
    rows = torch.from_numpy(np.concatenate([np.arange(num_known), num_known + order]))
    sorted_classifier = nn.Linear(classifier.in_features, classifier.out_features)
    state = {name: tensor[rows] for name, tensor in classifier.state_dict().items()}
    sorted_classifier.load_state_dict(state)
    if discovery and discovery.k_star:
        labels = np.argsort(order)[discovery.implicit_labels]
        discovery = replace(discovery, implicit_labels=labels)
    return Networks(networks.head, sorted_classifier), discovery


def _members(
    label: int, predicted: Ids, source_labels: Ids, discovery: Discovery | None, num_known: int
) -> tuple[str, Ids]:
    """Return the images that represent a class: those predicted as it, or else its training's."""
    rows = np.flatnonzero(predicted == label)
    if len(rows):
        return "target", rows
    if label < num_known:
        return "source", np.flatnonzero(source_labels == label)
    if discovery is None:  # without a round, the one `unknown` output stands for all of them
        return "target", np.arange(len(predicted))
    return "target", discovery.candidates.implicit[discovery.implicit_labels == label - num_known]
