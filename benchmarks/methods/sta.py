"""STA: sort the target by similarity to the known classes, then align the similar images.

Liu, Cao, Long, Wang, Yang 2019, "Separate to Adapt: Open Set Domain Adaptation via Progressive
Separation", CVPR. Step 1: with the classifier, one binary classifier per known class; the largest
of their outputs is the similarity of an image. The similarities are clustered into three, and the
outer two clusters train a binary classifier of known images. Step 2: its output is the weight of
each target image in the adversarial alignment of the domains and in the entropy (as known), and as
an example of the extra class `unknown`. Step 1 has the steps of scda's pre-training and step 2 the
remaining ones, at scda's rate, which is also the authors'. Where their program and the paper
differ, ours follows the paper: the largest similarity, not the sum. Their program sorts batch by
batch and increases the weights of the adversary and of the examples of `unknown` slowly up to 0.3.
Ours is simpler: the whole target is sorted once, at the end of step 1, and the weights are 1 for
the adversary and 1 / K for the examples of `unknown` from the start.
"""

import torch
import torch.nn.functional as F  # noqa: N812 - as everybody writes it
from sklearn.cluster import KMeans
from sklearn.linear_model import LogisticRegression
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
from scda.adapt.training.losses import reverse_gradient
from scda.adapt.training.networks import Networks, infer

_ENTROPY = 0.1  # weight
_HIDDEN = 256  # hidden units of the domain discriminator


def fit(source: Labelled, target: Tensor, config: TrainConfig, generator: Generator) -> Prediction:
    """Separate, then adapt; reject images whose most probable class is the extra one."""
    num_known = num_classes(source)
    head = new_head(target, config)
    networks = Networks(head, nn.Linear(head.width, num_known + 1))
    similarity = _separate(networks, source, target, config, generator)
    weights = knownness(infer(networks, target)[1], similarity, config.seed)
    _align(networks, source, target, weights, config, generator)
    logits, adapted = infer(networks, target)
    predicted = logits.argmax(dim=1)
    labels = torch.where(predicted == num_known, UNKNOWN, predicted)
    return Prediction(labels, logits.softmax(dim=1)[:, -1], adapted)


def _separate(
    networks: Networks, source: Labelled, target: Tensor, config: TrainConfig, generator: Generator
) -> Tensor:
    """Step 1: train on the source; return the similarity of every target image, (N,), 0 to 1."""
    num_known = num_classes(source)
    binary = nn.Linear(config.head_widths[-1], num_known)
    batches = source_batches(source, config, generator)

    def loss() -> Tensor:
        features, labels = next(batches)
        features = networks.head(features)
        one_hot = F.one_hot(labels, num_known).float()
        of_each = F.binary_cross_entropy_with_logits(binary(features), one_hot)
        return F.cross_entropy(networks.classifier(features), labels) + num_known * of_each

    modules = [networks.head, networks.classifier, binary]
    minimise(modules, loss, config.pretrain_length(num_known), config)
    with torch.no_grad():
        of_each_class: Tensor = binary(infer(networks, target)[1]).sigmoid()  # (N, K)
    return of_each_class.max(dim=1).values


def knownness(features: Tensor, similarity: Tensor, seed: int) -> Tensor:
    """Return the probability that each target image is known, (N,).

    The classifier is trained on the images with the highest and the lowest similarity.
    """
    values = similarity.numpy()[:, None]
    kmeans = KMeans(3, n_init=10, random_state=seed).fit(values)
    order = kmeans.cluster_centers_[:, 0].argsort()
    sure = (kmeans.labels_ == order[0]) | (kmeans.labels_ == order[2])
    known = kmeans.labels_ == order[2]
    classifier = LogisticRegression(max_iter=1000).fit(features.numpy()[sure], known[sure])
    return torch.from_numpy(classifier.predict_proba(features.numpy())[:, 1]).float()


def _align(
    networks: Networks,
    source: Labelled,
    target: Tensor,
    weights: Tensor,
    config: TrainConfig,
    generator: Generator,
) -> None:
    """Step 2: align the known images and assign the others to `unknown`."""
    num_known = num_classes(source)
    width = config.head_widths[-1]
    domain = nn.Sequential(nn.Linear(width, _HIDDEN), nn.ReLU(), nn.Linear(_HIDDEN, 1))
    of_source = source_batches(source, config, generator)
    of_target = target_batches(target, config, generator)

    def loss() -> Tensor:
        features, labels = next(of_source)
        rows = next(of_target)
        features, of_rows = networks.head(features), networks.head(target[rows])
        known = weights[rows]
        logits = networks.classifier(of_rows)
        unknown = F.cross_entropy(logits, torch.full_like(rows, num_known), reduction="none")
        return (
            F.cross_entropy(networks.classifier(features), labels)
            + _mean(unknown, 1 - known) / num_known
            + _domains(domain, features, of_rows, known)
            + _ENTROPY * _mean(entropy(logits[:, :num_known]), known)
        )

    steps = total_steps(config, num_known, len(target)) - config.pretrain_length(num_known)
    minimise([networks.head, networks.classifier, domain], loss, steps, config)


def _domains(domain: nn.Module, source: Tensor, target: Tensor, known: Tensor) -> Tensor:
    """Return the loss of the discriminator, which F maximises; unknown images have weight 0."""
    of_source = F.softplus(-domain(reverse_gradient(source))[:, 0]).mean()
    of_target = F.softplus(domain(reverse_gradient(target))[:, 0])
    return of_source + _mean(of_target, known)


def _mean(losses: Tensor, weights: Tensor) -> Tensor:
    return (losses * weights).sum() / weights.sum().clamp_min(1e-6)
