"""Training on the source alone, with a threshold on the entropy and no adaptation.

The threshold, half of the largest possible entropy, is that of DANCE: Saito et al. 2020,
"Universal Domain Adaptation through Self Supervision", https://arxiv.org/abs/2002.07953
"""

import math

import torch.nn.functional as F  # noqa: N812 - as everybody writes it
from torch import Generator, Tensor, nn

from benchmarks.methods.training import (
    Prediction,
    entropy,
    minimise,
    new_head,
    num_classes,
    rejected_above,
    source_batches,
    total_steps,
)
from scda.adapt.config import TrainConfig
from scda.adapt.data.dataset import Labelled
from scda.adapt.training.networks import Networks, infer


def fit(source: Labelled, target: Tensor, config: TrainConfig, generator: Generator) -> Prediction:
    """Train on the source; reject images with an entropy above log(K) / 2 nats."""
    num_known = num_classes(source)
    head = new_head(target, config)
    networks = Networks(head, nn.Linear(head.width, num_known))
    batches = source_batches(source, config, generator)

    def loss() -> Tensor:
        features, labels = next(batches)
        return F.cross_entropy(networks.logits(features), labels)

    steps = total_steps(config, num_known, len(target))
    minimise([networks.head, networks.classifier], loss, steps, config)
    logits, adapted = infer(networks, target)
    return rejected_above(entropy(logits), math.log(num_known) / 2, logits.argmax(dim=1), adapted)
