"""What a second training says of images that it was not trained on.

The images that a model adapted to lie closer to its classes than new images of the same kind, and
few of them are outliers. So a fifth of the target is held out of a second model, which is thrown
away, to learn how far new images of the same kind lie, and whether it puts them into the same
class. Its confidences say nothing, because they are calibrated for its own classes.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from scda.adapt.config import TrainConfig
from scda.adapt.data.dataset import Labelled
from scda.adapt.data.shared import Shared
from scda.adapt.discovery.kmeans import Points
from scda.adapt.discovery.matching import same_class
from scda.adapt.export.final_model import FinalModel, final_model
from scda.adapt.runtime import rng
from scda.adapt.runtime.beside import beside
from scda.adapt.runtime.threads import one_thread
from scda.adapt.training.algorithm import adapt
from scda.adapt.training.networks import Networks, infer
from scda.models.errors import GateError
from scda.models.index import Ids
from scda.models.target_figures import Distribution, HeldOut

LEAST = 200  # images of the target; fewer would leave too few to tell anything
_MOST = 10_000  # images of the target that are used
_PARTS = 5  # one of them is held out


@dataclass(frozen=True)
class Rehearsal:
    """A second model, as far as it is kept."""

    figures: HeldOut
    held: Ids  # rows of the target that it was not trained on, (H,)
    predicted: Ids  # its output for every target image, (M,)


@dataclass(frozen=True)
class Agreement:
    """The model's answers for the held-out images, and whether the second one agrees."""

    rows: Ids  # of the target, (H,)
    confidence: Points  # calibrated, (H,)
    uncalibrated: Points  # that of the softmax, (H,)
    agrees: NDArray[np.bool_]  # (H,)


def rehearse(
    source: Labelled,
    target: Tensor,
    config: TrainConfig,
    classifier: nn.Linear | None = None,
    *,
    shared: Shared | None = None,
) -> Rehearsal | None:
    """Return what a model of four fifths of the target answers for the other fifth.

    Args:
        source: Backbone features (N, D_backbone) with labels 0 to K - 1.
        target: Backbone features without labels, (M, D_backbone).
        config: Configuration of the run, with a frozen backbone.
        classifier: The classifier of the backbone's pre-training; None if it is not known.
        shared: The images that both domains hold; None for none.

    Returns:
        The answers; None if the target has fewer than 200 images, no image is left to hold out, or
        training diverges.
    """
    with rehearsing(source, target, config, classifier, shared=shared) as result:
        return result()


@contextmanager
def rehearsing(
    source: Labelled,
    target: Tensor,
    config: TrainConfig,
    classifier: nn.Linear | None = None,
    *,
    shared: Shared | None = None,
    apart: bool = False,
) -> Iterator[Callable[[], Rehearsal | None]]:
    """Yield a function that returns what `rehearse` does.

    Args:
        source: As for `rehearse`, with all others.
        target: The same.
        config: The same.
        classifier: The same.
        shared: The same.
        apart: Whether the second model is trained from now on in a process of its own, which ends
            with the block; else it is trained when the function is called.
    """
    held, kept = _divided(len(target), config.seed, shared)
    if not len(held):
        yield lambda: None
        return

    def given() -> tuple[Any, ...]:
        of_rest = shared.of_target(kept) if shared else None
        return source, target[torch.from_numpy(kept)], config, classifier, of_rest

    def here() -> FinalModel | None:
        return _second(*given())

    if not apart:
        yield lambda: _answers(here(), target, held)
        return
    with beside(_alone, *given()) as train:

        def there_or_here() -> FinalModel | None:
            try:
                return train()
            except GateError:  # it was killed, as for want of memory, which is free by now
                return here()

        yield lambda: _answers(there_or_here(), target, held)


def _divided(count: int, seed: int, shared: Shared | None) -> tuple[Ids, Ids]:
    """Return the rows of the target to hold out, none where that is not possible, and to keep."""
    rows = np.random.default_rng(seed).permutation(count)[:_MOST]
    held, kept = rows[::_PARTS], np.sort(np.delete(rows, np.s_[::_PARTS]))
    if shared:  # a labelled image is known to every model, and so none is held out
        labelled = np.flatnonzero(shared.labels >= 0)
        held, kept = held[~np.isin(held, labelled)], np.union1d(kept, labelled)
    return (held if count >= LEAST else held[:0]), kept


def _alone(*given: Any) -> FinalModel | None:
    with one_thread():
        return _second(*given)


def _second(
    source: Labelled,
    rest: Tensor,
    config: TrainConfig,
    classifier: nn.Linear | None,
    shared: Shared | None,
) -> FinalModel | None:
    """Return the second model, or None if its training diverges."""
    with rng.kept():
        try:
            adapted = adapt(source, rest, config, classifier=classifier, shared=shared)
        except GateError:
            return None
        classes = [str(number) for number in range(int(source.labels.max()) + 1)]
        return final_model(adapted, classes)


def _answers(final: FinalModel | None, target: Tensor, held: Ids) -> Rehearsal | None:
    """Return what the second model answers for a target, (M, D_backbone)."""
    if final is None:
        return None
    logits, features = infer(final.networks, target)
    distances = final.distances_of(features.numpy()[held])
    figures = HeldOut(
        images=len(held),
        outliers=int(final.are_outliers(distances).sum()),
        distance=Distribution.of(distances.min(axis=1)),
    )
    return Rehearsal(figures, held, np.asarray(logits.argmax(dim=1), np.int64))


def agreement(final: FinalModel, target: Tensor, rehearsal: Rehearsal) -> Agreement:
    """Return which held-out images a second training puts into the same class as a model.

    Args:
        final: The model, which was trained on all images.
        target: Backbone features of its target, (M, D_backbone).
        rehearsal: The second training.
    """
    rows, classifier = rehearsal.held, final.networks.classifier
    assert isinstance(classifier, nn.Sequential)  # and the calibration behind it
    plain = Networks(final.networks.head, classifier[0])
    logits, _ = infer(plain, target[torch.from_numpy(rows)])
    same = same_class(final.predicted, rehearsal.predicted, len(final.class_names))
    return Agreement(
        rows=rows,
        confidence=final.probabilities[rows].max(axis=1),
        uncalibrated=logits.softmax(dim=1).numpy().max(axis=1),
        agrees=same[rows],
    )
