"""SHOT, open-set form: keep the source classifier and move the target features towards it.

Liang, Hu, Feng 2020, "Do We Really Need to Access the Source Data? Source Hypothesis Transfer for
Unsupervised Domain Adaptation", https://arxiv.org/abs/2002.08546: source training with labels
smoothed by 0.1; then, with C frozen, information maximisation and pseudo-labels from class
centroids, weight 0.3, over target images whose entropy falls into the lower of two k-means
clusters. Images in the higher one are unknown, both in training, where they count only in the mean
prediction of a batch, and in the result. Pseudo-labels are recomputed at most 15 times, and the
rate is 1e-2 with inverse decay (`decay_from`), both as in the authors' program. Source training has
the steps of scda's pre-training, and target training the remaining ones.
"""

import math

import torch
import torch.nn.functional as F  # noqa: N812 - as everybody writes it
from sklearn.cluster import KMeans
from torch import Generator, Tensor, nn
from torch.nn.utils.parametrizations import weight_norm

from benchmarks.methods.training import (
    Prediction,
    entropy,
    minimise,
    new_head,
    num_classes,
    rejected_above,
    source_batches,
    target_batches,
    total_steps,
)
from scda.adapt.config import TrainConfig
from scda.adapt.data.dataset import Labelled
from scda.adapt.training.networks import Networks, infer

_SMOOTHING = 0.1
_PSEUDO = 0.3  # weight
_CENTROID_ROUNDS = 2
_LABELLINGS = 15  # number of times the target is labelled, evenly over its steps


def fit(
    source: Labelled,
    target: Tensor,
    config: TrainConfig,
    generator: Generator,
    *,
    decay_from: float = 0.0,
) -> Prediction:
    """Train on the source, then on the target alone; reject the cluster of higher entropy."""
    num_known = num_classes(source)
    head = new_head(target, config)
    networks = Networks(head, weight_norm(nn.Linear(head.width, num_known)))
    _train_source(networks, source, config, generator, decay_from)
    networks.classifier.requires_grad_(False)
    left = total_steps(config, num_known, len(target)) - config.pretrain_length(num_known)
    batches = target_batches(target, config, generator)
    every = max(1, math.ceil(left / _LABELLINGS))
    step = 0
    labels = known = torch.empty(0)

    def loss() -> Tensor:
        nonlocal step, labels, known
        if step % every == 0:
            labels, known = pseudo_labels(networks, target, config.seed)
            head.train()
        step += 1
        rows = next(batches)
        logits = networks.logits(target[rows])
        taught = known[rows]
        if not taught.any():  # only unknown images in the batch
            return logits.sum() * 0
        pseudo = labels[rows][taught]
        return information(logits, taught) + _PSEUDO * F.cross_entropy(logits[taught], pseudo)

    minimise([head], loss, left, config, decay_from=decay_from)
    logits, adapted = infer(networks, target)
    entropies = entropy(logits)
    return rejected_above(entropies, halves(entropies, config.seed), logits.argmax(dim=1), adapted)


def _train_source(
    networks: Networks,
    source: Labelled,
    config: TrainConfig,
    generator: Generator,
    decay_from: float,
) -> None:
    batches = source_batches(source, config, generator)

    def loss() -> Tensor:
        features, labels = next(batches)
        return F.cross_entropy(networks.logits(features), labels, label_smoothing=_SMOOTHING)

    steps = config.pretrain_length(num_classes(source))
    modules = [networks.head, networks.classifier]
    minimise(modules, loss, steps, config, decay_from=decay_from)


def information(logits: Tensor, known: Tensor) -> Tensor:
    """Return the known images' mean entropy less the entropy of the mean prediction, in nats.

    Args:
        logits: Logits of all images, (N, K).
        known: Whether an image counts as known, (N,).
    """
    mean = logits.softmax(dim=1).mean(dim=0)
    return entropy(logits[known]).mean() + (mean * mean.clamp_min(1e-12).log()).sum()


def halves(entropies: Tensor, seed: int) -> float:
    """Return the entropy that separates the two clusters of 2-means."""
    kmeans = KMeans(2, n_init=10, random_state=seed).fit(entropies.numpy()[:, None])
    return float(kmeans.cluster_centers_.mean())


def pseudo_labels(networks: Networks, target: Tensor, seed: int) -> tuple[Tensor, Tensor]:
    """Return the nearest class centroid of every image (N,), and which images are known (N,)."""
    logits, features = infer(networks, target)
    entropies = entropy(logits)
    known = entropies <= halves(entropies, seed)
    features = F.normalize(F.pad(features, (0, 1), value=1.0))  # a constant, then length 1
    weights = logits.softmax(dim=1)
    there = logits[known].argmax(dim=1).unique()  # a class without images has no centroid
    for _ in range(_CENTROID_ROUNDS):
        centroids = F.normalize(weights[known].T @ features[known])  # (K, D + 1)
        labels = there[(features @ centroids[there].T).argmax(dim=1)]
        weights = F.one_hot(labels, logits.shape[1]).float()
    return labels, known
