"""What a model answers for images of the target that it was not trained on.

The images that a model adapted to lie closer to its classes than new images of the same kind, and
few of them are outliers. So a fifth of the target is held out of a second model, which is thrown
away, to learn how far new images of the same kind lie. Its confidences say nothing, because they
are calibrated for its own classes.
"""

import numpy as np
import torch
from torch import Tensor, nn

from scda.adapt.config import TrainConfig
from scda.adapt.data.dataset import Labelled
from scda.adapt.data.shared import Shared
from scda.adapt.export.final_model import final_model
from scda.adapt.runtime import rng
from scda.adapt.training.algorithm import adapt
from scda.adapt.training.networks import infer
from scda.models.errors import GateError
from scda.models.target_figures import Distribution, HeldOut

LEAST = 200  # images of the target; fewer would leave too few to tell anything
_MOST = 10_000  # images of the target that are used
_PARTS = 5  # one of them is held out


def rehearse(
    source: Labelled,
    target: Tensor,
    config: TrainConfig,
    classifier: nn.Linear | None = None,
    *,
    shared: Shared | None = None,
) -> HeldOut | None:
    """Return what a model of four fifths of the target answers for the other fifth.

    Args:
        source: Backbone features (N, D_backbone) with labels 0 to K - 1.
        target: Backbone features without labels, (M, D_backbone).
        config: Configuration of the run, with a frozen backbone.
        classifier: The classifier of the backbone's pre-training; None if it is not known.
        shared: The images that both domains hold; None for none.

    Returns:
        The figures; None if the target has fewer than 200 images, or training diverges.
    """
    if len(target) < LEAST:
        return None
    rows = np.random.default_rng(config.seed).permutation(len(target))[:_MOST]
    held, kept = rows[::_PARTS], np.sort(np.delete(rows, np.s_[::_PARTS]))
    with rng.kept():
        try:
            rest = target[torch.from_numpy(kept)]
            of_rest = shared.of_target(kept) if shared else None
            adapted = adapt(source, rest, config, classifier=classifier, shared=of_rest)
        except GateError:
            return None
        classes = [str(number) for number in range(int(source.labels.max()) + 1)]
        final = final_model(adapted, classes)
    _, features = infer(final.networks, target[torch.from_numpy(held)])
    distances = final.distances_of(features.numpy())
    return HeldOut(
        images=len(held),
        outliers=int(final.are_outliers(distances).sum()),
        distance=Distribution.of(distances.min(axis=1)),
    )
