"""TIM: a source model that knows negatives, made of spliced features, and is then inherited.

Kundu, Venkat, Revanur, Rahul, Babu 2020, "Towards Inheritable Models for Open-Set Domain
Adaptation", https://arxiv.org/abs/2004.04388. Of the paper, abstract and introduction could be
read; the rest follows the authors' program for Office-31. Source: in the backbone's features of an
image, the largest 15% and the smallest 10% are replaced by those of an image of another class; the
spliced features are divided by k-means into 4.5 negative classes per known one; head and classifier
learn both, negatives with weight 0.2. Target: classifiers are frozen and the head goes on from the
source's. The inheritability of an image is the largest probability of a known class in the source
model, divided by the largest of all images. It is the weight between two pushes: towards the known
and towards the negative classes (weight 1), and to a low entropy among them (weight 0.1). The 15%
with the highest inheritability also have their class as pseudo-label. Source training has the steps
of scda's pre-training, and the target the remaining ones.

Theirs has Adam with rates of 1e-4 and 1e-5, some 60 to 90 steps on the source and 15,000 on the
target, batches of 64, and 20,000 spliced features. Ours has scda's SGD on the source; on the target
Adam, whose rate is as much higher as there are fewer steps; scda's batches; 20 spliced features per
negative class; both target losses in every step instead of in turn; and inheritability divided by
its largest value in the target instead of in the batch.
"""

from collections.abc import Iterator

import torch
import torch.nn.functional as F  # noqa: N812 - as everybody writes it
from torch import Generator, Tensor, nn

from benchmarks.methods.training import (
    UNKNOWN,
    Prediction,
    entropy,
    minimise,
    new_head,
    num_classes,
    source_batches,
    target_batches,
    total_steps,
)
from scda.adapt.config import TrainConfig
from scda.adapt.data.dataset import Labelled
from scda.adapt.discovery.kmeans import cluster
from scda.adapt.training.networks import Networks, infer

_TOP, _BOTTOM = 0.15, 0.10  # shares of the features that are replaced
_NEGATIVE_CLASSES = 4.5  # per known class
_NEGATIVES = 20  # spliced features per negative class
_NEGATIVE, _ENTROPY = 0.2, 0.1  # weights
_SURE = 0.15  # share of the target with pseudo-labels
_RATE_AND_STEPS = 1e-5 * 15_000  # of Adam on the target


def fit(source: Labelled, target: Tensor, config: TrainConfig, generator: Generator) -> Prediction:
    """Train with negatives, then adapt; reject images whose most probable class is negative."""
    num_known = num_classes(source)
    num_negative = round(_NEGATIVE_CLASSES * num_known)
    head = new_head(target, config)
    networks = Networks(head, nn.Linear(head.width, num_known + num_negative))
    negatives = negative_classes(source, num_negative, config.seed, generator)
    _train_source(networks, source, negatives, config, generator)
    networks.classifier.requires_grad_(False)
    _adapt(networks, target, num_known, config, generator)
    logits, adapted = infer(networks, target)
    predicted = logits.argmax(dim=1)
    labels = torch.where(predicted >= num_known, UNKNOWN, predicted)
    return Prediction(labels, logits.softmax(dim=1)[:, num_known:].sum(dim=1), adapted)


def spliced(features: Tensor, others: Tensor) -> Tensor:
    """Return features (N, D) with their largest and smallest values replaced by those of others.

    Args:
        features: Features, (N, D).
        others: For each row the features of an image of another class, (N, D).
    """
    order = features.argsort(dim=1, descending=True)
    width = features.shape[1]
    ends = [order[:, : int(_TOP * width)], order[:, width - int(_BOTTOM * width) :]]
    replaced = torch.cat(ends, dim=1)
    return features.scatter(1, replaced, others.gather(1, replaced))


def negative_classes(
    source: Labelled, num_negative: int, seed: int, generator: Generator
) -> Labelled:
    """Return spliced features with the labels K to K + num_negative - 1 of their clusters."""
    count = _NEGATIVES * num_negative
    pairs = torch.cat([*_pairs(source.labels, count, generator)], dim=1)[:, :count]
    features = spliced(source.features[pairs[0]], source.features[pairs[1]])
    clusters = cluster(features.numpy(), num_negative, restarts=1, seed=seed).labels
    return Labelled(features, torch.from_numpy(clusters) + num_classes(source))


def _pairs(labels: Tensor, count: int, generator: Generator) -> Iterator[Tensor]:
    """Yield rows of images of different classes, (2, M), until there are `count` pairs."""
    found = 0
    while found < count:
        rows, others = (torch.randperm(len(labels), generator=generator) for _ in range(2))
        differ = labels[rows] != labels[others]
        found += int(differ.sum())
        yield torch.stack([rows[differ], others[differ]])


def _train_source(
    networks: Networks,
    source: Labelled,
    negatives: Labelled,
    config: TrainConfig,
    generator: Generator,
) -> None:
    batches = [source_batches(images, config, generator) for images in (source, negatives)]

    def loss() -> Tensor:
        (features, labels), (of_negatives, of_clusters) = (next(batch) for batch in batches)
        logits = networks.logits(torch.cat([features, of_negatives]))
        known, negative = logits[: len(labels)], logits[len(labels) :]
        of_known = F.cross_entropy(known, labels)
        return of_known + _NEGATIVE * F.cross_entropy(negative, of_clusters)

    steps = config.pretrain_length(num_classes(source))
    minimise([networks.head, networks.classifier], loss, steps, config)


def _adapt(
    networks: Networks, target: Tensor, num_known: int, config: TrainConfig, generator: Generator
) -> None:
    """Train the head on the target; inheritability and pseudo-labels are the source model's."""
    probs = infer(networks, target)[0].softmax(dim=1)
    highest, classes = probs[:, :num_known].max(dim=1)
    weights = highest / highest.max()
    sure = weights.argsort(descending=True)[: max(2, int(_SURE * len(target)))]
    of_target = target_batches(target, config, generator)
    of_sure = source_batches(Labelled(target[sure], classes[sure]), config, generator)

    def loss() -> Tensor:
        rows = next(of_target)
        features, pseudo = next(of_sure)
        pushed = inheritance(networks.logits(target[rows]), weights[rows], num_known)
        return pushed + F.cross_entropy(networks.logits(features), pseudo)

    steps = total_steps(config, num_known, len(target)) - config.pretrain_length(num_known)
    minimise([networks.head], loss, steps, config, adam=_RATE_AND_STEPS / max(1, steps))


def inheritance(logits: Tensor, weights: Tensor, num_known: int) -> Tensor:
    """Return the mean loss that pushes images to known or to negative classes by their weights.

    Args:
        logits: Logits of K known and then of the negative classes, (N, C).
        weights: Inheritability, (N,), 0 to 1.
        num_known: K.
    """
    known, negative = logits[:, :num_known], logits[:, num_known:]
    log_all = logits.logsumexp(dim=1)
    of_known, of_negative = (log_all - part.logsumexp(dim=1) for part in (known, negative))
    side = weights * of_known + (1 - weights) * of_negative
    unsure = weights * entropy(known) + (1 - weights) * entropy(negative)
    return (side + _ENTROPY * unsure).mean()
