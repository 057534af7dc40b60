"""Which discovered classes are none: too few images, or images in the midst of known classes.

Where the domains lie far apart, the images of true new classes may have as many known neighbours
as those of false ones. So the neighbours alone never say that nothing is new: that was decided
before, from more evidence.
"""

import numpy as np

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
        leak_of = {
            output: leaks[predicted == output].mean()
            for output in outputs[outputs >= num_known].tolist()
            if (predicted == output).sum() >= _MIN_SIZE
        }
        limit = max(_MAX_LEAK, min(leak_of.values(), default=0.0))
        new = [output for output, leak in leak_of.items() if leak <= limit]
        if num_known + len(new) == len(outputs):
            break
        outputs = np.array([*range(num_known), *new], np.int64)
    return outputs
