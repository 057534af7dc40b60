"""The metrics of open-set adaptation with discovery, as functions of label arrays.

True labels (N,): 0 to K - 1 are known classes, K and above the implicit ones. Predictions (N,):
0 to K - 1 known, K and above discovered. Every value is a share, 0 to 1; 0/0 is 0; a class without
images is skipped.
"""

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score, roc_auc_score

from scda.adapt.discovery.kmeans import cluster
from scda.adapt.discovery.matching import matched_images
from scda.models.index import Features, normalised

Labels = NDArray[np.int64]


def open_set(true: Labels, predicted: Labels, num_known: int) -> dict[str, float]:
    """Return os, os_star, unk_pooled, unk_macro and hos.

    Source: Saito et al. 2018 (OS, OS*); Bucci et al. 2020 (HOS); docs/method.md, "Metrics".
    """
    recalls = [
        float((predicted[true == label] == label).mean())
        for label in range(num_known)
        if (true == label).any()
    ]
    rejected = predicted >= num_known
    implicit = true >= num_known
    per_class = [float(rejected[true == label].mean()) for label in np.unique(true[implicit])]
    os_star = float(np.mean(recalls)) if recalls else 0.0
    unk = float(rejected[implicit].mean()) if implicit.any() else 0.0
    return {
        "os": (num_known * os_star + unk) / (num_known + 1),
        "os_star": os_star,
        "unk_pooled": unk,
        "unk_macro": float(np.mean(per_class)) if per_class else 0.0,
        "hos": harmonic_mean(os_star, unk),
    }


def harmonic_mean(*values: float) -> float:
    """Return the harmonic mean, 0 where a value is 0."""
    return len(values) / sum(1 / value for value in values) if all(values) else 0.0


def auroc(true: Labels, novelty_score: NDArray[np.float32], num_known: int) -> float:
    """Return how often an implicit image has a higher novelty score than a known one, 0 to 1.

    Args:
        true: True labels, (N,).
        novelty_score: 1 - the sum of the known classes' probabilities, (N,).
        num_known: Number of known classes, K.

    Returns:
        The area under the ROC curve; 0 where one of the two kinds has no image.
    """
    implicit = true >= num_known
    if implicit.all() or not implicit.any():
        return 0.0
    return float(roc_auc_score(implicit, novelty_score))


def implicit_agreement(true: Labels, predicted: Labels, num_known: int) -> dict[str, float]:
    """Return nmi_implicit and ari_implicit: whether images of one implicit class stay together."""
    implicit = true >= num_known
    if not implicit.any():
        return {"nmi_implicit": 0.0, "ari_implicit": 0.0}
    pair = (true[implicit], predicted[implicit])
    return {
        "nmi_implicit": float(normalized_mutual_info_score(*pair)),
        "ari_implicit": float(adjusted_rand_score(*pair)),
    }


def acc_joint(true: Labels, predicted: Labels, num_outputs: int) -> float:
    """Return accuracy under the best one-to-one match of all outputs to all classes.

    A prediction of `num_outputs` or above stands for no class and counts as wrong.
    """
    named = predicted < num_outputs
    if not named.any():
        return 0.0
    return matched_images(predicted[named], true[named]) / len(true)


def acc_novel(true: Labels, predicted: Labels, num_known: int, num_outputs: int) -> float:
    """Return accuracy on implicit images: discovered classes matched to implicit ones.

    An implicit image that is predicted known counts as wrong, and so does a prediction of
    `num_outputs` or above, which stands for no class.
    """
    implicit = true >= num_known
    found = implicit & (predicted >= num_known) & (predicted < num_outputs)
    if not found.any():
        return 0.0
    right = matched_images(predicted[found] - num_known, true[found] - num_known)
    return float(right / implicit.sum())


def h3(
    true: Labels, predicted: Labels, features: Features, num_known: int, *, seed: int = 0
) -> dict[str, float]:
    """Return h3_oracle and h3_model: the harmonic mean of OS*, UNK and NMI.

    `h3_oracle` takes the NMI of spherical k-means with the true number of classes on the true
    implicit images, as in the literature; `h3_model` takes the NMI of the model's predictions.

    Args:
        true: True labels, (N,).
        predicted: Predictions, (N,).
        features: Output of F, (N, D).
        num_known: Number of known classes, K.
        seed: Random seed of the k-means.
    """
    shares = open_set(true, predicted, num_known)
    implicit = true >= num_known
    classes = len(np.unique(true[implicit]))
    oracle = 0.0
    if classes:
        points = normalised(features[implicit])
        clusters = cluster(points, classes, restarts=10, seed=seed, spherical=True).labels
        oracle = float(normalized_mutual_info_score(true[implicit], clusters))
    own = implicit_agreement(true, predicted, num_known)["nmi_implicit"]
    pair = (shares["os_star"], shares["unk_pooled"])
    return {"h3_oracle": harmonic_mean(*pair, oracle), "h3_model": harmonic_mean(*pair, own)}


def correspondence(
    true: Labels,
    predicted: Labels,
    confidence: NDArray[np.float32],
    discovered: range,
    n: int,
) -> int:
    """Return how many implicit classes the n most confident images of discovered classes show.

    Args:
        true: True labels, (N,).
        predicted: Predictions, (N,).
        confidence: Confidence of the predictions, (N,).
        discovered: Outputs that are discovered classes, K and above.
        n: Number of images of each discovered class.

    Source: SCDA, supplement 2.4, "Implicit class correspondence".
    """
    found: set[int] = set()
    for label in discovered:
        members = np.flatnonzero(predicted == label)
        top = members[np.argsort(-confidence[members], kind="stable")][:n]
        found |= {int(label) for label in true[top] if label >= discovered.start}
    return len(found)
