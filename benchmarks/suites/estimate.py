"""The label-free estimate of a run: agreement of predictions with the nearest source images."""

import numpy as np
from sklearn.neighbors import KNeighborsClassifier

from benchmarks.open_set.runs import Inputs
from scda.adapt.evaluation.metrics import Labels
from scda.models.index import Features, normalised

_NEIGHBOURS = 5


def knn_agree(inputs: Inputs, predicted: Labels) -> float | None:
    """Return how often a known prediction is the majority class of the five nearest source images.

    Neighbours are the nearest by cosine of backbone features, after the mean of each domain has
    been subtracted.

    Args:
        inputs: Features of both domains and labels of the source; no labels of the target.
        predicted: Predictions of the target, (N,); K and above are discovered classes.

    Returns:
        The share, 0 to 1, of the images predicted as a known class; None if there are none.
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
    """Return features (N, D) minus their mean, scaled to length 1."""
    return normalised(features - features.mean(axis=0))
