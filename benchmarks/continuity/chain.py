"""Trainings on parts of a task's target, each after the one before, as `train --after` does them.

They run on cached features of the frozen backbone, with the functions of `scda-adapt train`; export
and report are left out. The backbone keeps the statistics of its pre-training, as `auto` chooses
for Office-31.
"""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch

from benchmarks.continuity.outcomes import Outcome
from benchmarks.open_set.execute import Computed
from benchmarks.open_set.protocols import Lists
from benchmarks.open_set.runs import Inputs, inputs_of
from scda.adapt.config import TrainConfig
from scda.adapt.continuity.anchors import anchors_of
from scda.adapt.continuity.continued import Found, continued
from scda.adapt.continuity.earlier import Earlier
from scda.adapt.continuity.known import known_classes
from scda.adapt.continuity.memory import Memory, remember
from scda.adapt.export.final_model import FinalModel, final_model
from scda.adapt.training.algorithm import adapt
from scda.models.bundle import ClassInfo, Manifest
from scda.models.index import Ids
from scda.models.names import Names
from scda.models.preprocess import Preprocessing
from scda.models.previous import Previous

_PREPROCESSING = Preprocessing(
    resize_px=256, crop_px=224, mean=(0.0, 0.0, 0.0), std=(1.0, 1.0, 1.0)
)


@dataclass(frozen=True)
class Task:
    """One task: its images, their features, and the names of its classes by true label."""

    lists: Lists
    features: Computed
    class_names: tuple[str, ...]
    seed: int

    @property
    def known(self) -> tuple[str, ...]:
        """The names of the known classes."""
        return self.class_names[: self.lists.num_known]

    @cached_property
    def inputs(self) -> Inputs:
        """The features of the whole task."""
        of_images = inputs_of(self.lists, self.features.features)
        return replace(of_images, classifier=self.features.classifier)

    def rows(self, share: float) -> Ids:
        """Return the first part of the shuffled target."""
        order = np.random.default_rng(self.seed).permutation(len(self.lists.target))
        return np.sort(order[: round(share * len(order))])


@dataclass(frozen=True)
class Step:
    """One training of a chain."""

    task: Task
    rows: Ids
    memory: Memory
    outcome: Outcome

    @cached_property
    def named(self) -> Outcome:
        """The outcome after somebody named the classes that had no name."""
        return self.outcome.named_by_majority()

    @property
    def earlier(self) -> Earlier:
        """What the next training takes over."""
        images = dict(zip(map(str, self.rows), self.outcome.predicted, strict=True))
        return Earlier(self.named.manifest, self.named.names, images, self.memory)


def trained(task: Task, share: float, before: Step | None = None) -> Step:
    """Return the training on a part of the target, after an earlier one if there is one."""
    rows, earlier = task.rows(share), before.earlier if before else None
    target, digests = task.inputs.target[torch.from_numpy(rows)], [str(row) for row in rows]
    anchors = None
    if earlier:
        promoted = known_classes(earlier, task.known, {}).promoted
        anchors = anchors_of(earlier, digests, promoted)
    config, classifier = TrainConfig(seed=task.seed), task.inputs.classifier
    adapted = adapt(task.inputs.source, target, config, anchors=anchors, classifier=classifier)
    final = final_model(adapted, list(task.known))
    memory = remember("frozen", target.numpy(), final.predicted, len(final.centroids))
    names, previous = Names(), None
    if earlier:
        after = continued(earlier, Found(task.known, final.predicted, digests, memory))
        final, names, previous = final.with_ids(after.class_ids), after.names, after.previous
        memory = after.memory
    manifest = _manifest(final, previous)
    truth = [task.class_names[task.lists.truth[row]] for row in rows]
    predicted = [final.class_ids[output] for output in final.predicted]
    return Step(task, rows, memory, Outcome(manifest, names, truth, predicted))


def _manifest(final: FinalModel, previous: Previous | None) -> Manifest:
    """Return as much of a manifest as names and a later training need."""
    num_known = len(final.class_names)
    classes = [
        ClassInfo(
            class_id=class_id,
            label=label,
            kind="known" if number < num_known else "discovered",
            size=0,
            mean_confidence=0.0,
            radius={},
            nearest_known=None,
            exemplars=(),
        )
        for number, (class_id, label) in enumerate(zip(final.class_ids, final.labels, strict=True))
    ]
    return Manifest(
        classes=tuple(classes),
        preprocessing=_PREPROCESSING,
        thresholds={},
        status=("ok",),
        files={},
        run={},
        previous=previous,
    )
