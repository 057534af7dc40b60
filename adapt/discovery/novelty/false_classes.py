"""Which discovered classes are none: too few images, or images in the midst of known classes."""

import numpy as np
from numpy.typing import NDArray

from scda.adapt.discovery.kmeans import Points
from scda.models.index import Ids

_MIN_SIZE = 3  # images
_MAX_LEAK = 0.4  # of the neighbours of a class's images may be predicted as known
_PASSES = 3  # where a class is dropped, its images go to others


def kept_outputs(logits: Points, near: Ids, num_known: int) -> Ids:
    """Return the outputs that remain when false classes are dropped, in order.

    Args:
        logits: Logits of the target, (M, K + k*).
        near: Rows of the nearest neighbours of every image, (M, n).
        num_known: Number of known classes, K.
    """
    outputs = np.arange(logits.shape[1])
    for _ in range(_PASSES):
        predicted = outputs[logits[:, outputs].argmax(axis=1)]
        leaks = (predicted[near] < num_known).mean(axis=1) if near.size else np.zeros(len(near))
        kept = [
            output
            for output in outputs.tolist()
            if output < num_known or _is_class(predicted == output, leaks)
        ]
        if len(kept) == len(outputs):
            break
        outputs = np.array(kept, np.int64)
    return outputs


def _is_class(members: NDArray[np.bool_], leaks: NDArray[np.float64]) -> bool:
    return bool(members.sum() >= _MIN_SIZE and leaks[members].mean() <= _MAX_LEAK)
