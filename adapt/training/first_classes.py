"""The classes that pre-training and the first discovery take for known.

A class whose images are all labelled images of the target is none of them: few images teach little,
and would hide the others of their class. It is discovered from all of its images, as a new class
is, and named by the labelled ones. Labelled images of other classes are learnt with their class.
"""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from scda.adapt.config import TrainConfig
from scda.adapt.data.dataset import Labelled
from scda.adapt.data.shared import Shared
from scda.models.index import Ids

_LEAST = 2  # classes of pre-training


@dataclass(frozen=True)
class FirstClasses:
    """What pre-training and the first discovery know of both domains.

    Attributes:
        classes: The known classes that they take for known, rising, (K',).
        rows: Rows of the source that they learn from, (N',).
        labels: Output of each of these, 0 to K' - 1, (N',).
        given: Output of every labelled target image, K' for one of a class that is still to be
            discovered, and -1 for other images, (M,).
    """

    classes: Ids
    rows: Ids
    labels: Ids
    given: Ids

    def of_source(self, source: Labelled) -> Labelled:
        """Return the part of the source that they learn from.

        Args:
            source: The whole source.
        """
        return Labelled(source.features[self.rows], torch.from_numpy(self.labels))

    def predicted(self, outputs: Tensor, num_known: int) -> Tensor:
        """Return the classes that outputs of pre-training stand for; K is new.

        Args:
            outputs: Numbers of outputs, 0 to K', (M,).
            num_known: Number of known classes, K.
        """
        return torch.from_numpy(np.append(self.classes, num_known))[outputs]

    @property
    def is_new(self) -> NDArray[np.bool_]:
        """Which target images are labelled ones of a class that is still to be discovered, (M,)."""
        return np.asarray(self.given == len(self.classes))


def first_classes(labels: Ids, shared: Shared, config: TrainConfig) -> FirstClasses:
    """Return the classes that pre-training and the first discovery take for known.

    Where nothing new is searched for, where the user gave the number of new classes, and where
    fewer than two classes have other images, these are all known classes.

    Args:
        labels: Labels of the source, (N,), 0 to K - 1.
        shared: The images that both domains hold.
        config: Configuration of the run.
    """
    has_others = np.bincount(labels[shared.elsewhere(len(labels))], minlength=labels.max() + 1) > 0
    discovers = config.rounds > 0 and config.novelty == "orphans" and config.novel != "no"
    all_known = not discovers or config.k or has_others.sum() < _LEAST
    classes = np.arange(len(has_others)) if all_known else np.flatnonzero(has_others)
    rows = np.flatnonzero(np.isin(labels, classes))
    output = np.full(len(has_others) + 1, len(classes))
    output[classes] = np.arange(len(classes))
    output[-1] = -1  # of the label -1
    return FirstClasses(classes, rows, output[labels[rows]], output[shared.labels])
