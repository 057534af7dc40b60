"""The label-free estimate of a run: whether predicted classes agree with nearby source images."""

import numpy as np
from sklearn.neighbors import KNeighborsClassifier

from benchmarks.open_set.runs import Inputs
from scda.adapt.evaluation.metrics import Labels
from scda.models.index import Features, normalised

_NEIGHBOURS = 5


def knn_agree(inputs: Inputs, predicted: Labels) -> float | None:
    """Return how often a known prediction is the majority of the five nearest source images.

    Neighbours are the nearest by cosine among backbone features, each domain about its own mean.

    Args:
        inputs: Features of both domains and labels of the source; no label of the target.
        predicted: (N,) predictions of the target, K and above for discovered classes.

    Returns:
        A share, 0 to 1, of the images predicted as a known class; None if no image is.
    """
    labels = inputs.source.labels.numpy()
    known = predicted <= labels.max()
    if not known.any():
        return None
    nearest = KNeighborsClassifier(min(_NEIGHBOURS, len(labels)))
    nearest.fit(_centred(inputs.source.features.numpy()), labels)
    majority = nearest.predict(_centred(inputs.target.numpy())[known])
    return float(np.mean(majority == predicted[known]))


def _centred(features: Features) -> Features:
    """Return (N, D) features of length 1 after their mean has been taken away."""
    return normalised(features - features.mean(axis=0))
