"""DANCE: cluster target images with their neighbours, and separate them by their entropy.

Saito, Kim, Sclaroff, Saenko 2020, "Universal Domain Adaptation through Self Supervision",
https://arxiv.org/abs/2002.07953: neighbourhood clustering against a memory of the target and the
class prototypes at temperature 0.05, entropy separation around log(K) / 2 with margin 0.5, both
with weight 0.05; statistics of batch norm per domain. The paper's rate is 1e-2 with inverse decay
(`decay_from`).
"""

import math

import torch
import torch.nn.functional as F  # noqa: N812 - as everybody writes it
from torch import Generator, Tensor

from benchmarks.methods.training import (
    Prediction,
    Prototypes,
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
from scda.adapt.training.networks import Networks, infer, refresh_batchnorm

_TEMPERATURE = 0.05
_WEIGHT = 0.05  # weight of each target loss
_MARGIN = 0.5  # nats


def fit(
    source: Labelled,
    target: Tensor,
    config: TrainConfig,
    generator: Generator,
    *,
    decay_from: float = 0.0,
) -> Prediction:
    """Cluster and separate; reject images with an entropy above log(K) / 2 nats."""
    num_known = num_classes(source)
    middle = math.log(num_known) / 2
    head = new_head(target, config)
    classifier = Prototypes(head.width, num_known, temperature=_TEMPERATURE)
    networks = Networks(head, classifier)
    memory = F.normalize(infer(networks, target)[1])
    of_source = source_batches(source, config, generator)
    of_target = target_batches(target, config, generator)

    def loss() -> Tensor:
        features, labels = next(of_source)
        rows = next(of_target)
        of_rows = head(target[rows])
        directions = classifier.directions()
        clustering = neighbourhood(F.normalize(of_rows), rows, memory, directions)
        separation = away_from(middle, entropy(classifier(of_rows)))
        memory[rows] = F.normalize(of_rows.detach())
        supervised = F.cross_entropy(networks.logits(features), labels)
        return supervised + _WEIGHT * (clustering + separation)

    steps = total_steps(config, num_known, len(target))
    unit = [classifier.weight]
    minimise([head, classifier], loss, steps, config, decay_from=decay_from, unit=unit)
    refresh_batchnorm(networks, target)  # statistics of the target
    logits, adapted = infer(networks, target)
    return rejected_above(entropy(logits), middle, logits.argmax(dim=1), adapted)


def neighbourhood(features: Tensor, rows: Tensor, memory: Tensor, prototypes: Tensor) -> Tensor:
    """Return the mean entropy, in nats, of the distribution of an image over its neighbours.

    Args:
        features: Features of a batch, (B, D), rows of length 1.
        rows: Distinct rows of the memory that the batch replaces, (B,); an image is not its own
            neighbour.
        memory: Features of the whole target, (N, D), rows of length 1.
        prototypes: Prototypes of the known classes, (K, D), rows of length 1.
    """
    memory = memory.index_copy(0, rows, features)
    cosines = features @ torch.cat([memory, prototypes]).T  # (B, N + K)
    themselves = F.one_hot(rows, cosines.shape[1]).bool()
    # Finite, because 0 times minus infinity is not a number.
    return entropy((cosines / _TEMPERATURE).masked_fill(themselves, -1e4)).mean()


def away_from(middle: float, entropies: Tensor) -> Tensor:
    """Return minus the mean distance to the middle; distances below the margin count as 0."""
    distances = (entropies - middle).abs()
    return -torch.where(distances > _MARGIN, distances, 0.0).mean()
