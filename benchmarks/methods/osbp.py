"""OSBP: an extra class `unknown`, kept at one half by the classifier and pushed away by F.

Saito, Yamamoto, Ushiku, Harada 2018, "Open Set Domain Adaptation by Backpropagation",
https://arxiv.org/abs/1804.10427: cross-entropy on the source, binary cross-entropy of the target's
probability of `unknown` against t = 0.5, whose gradient is reversed between C and F, weight 1.
With frozen features, the paper trains its new layers like scda: momentum SGD with rate 1e-3.
"""

import torch
import torch.nn.functional as F  # noqa: N812 - as everybody writes it
from torch import Generator, Tensor, nn

from benchmarks.methods.training import (
    UNKNOWN,
    Prediction,
    minimise,
    new_head,
    num_classes,
    source_batches,
    target_batches,
    total_steps,
)
from scda.adapt.config import TrainConfig
from scda.adapt.data.dataset import Labelled
from scda.adapt.training.losses import adversarial, reverse_gradient
from scda.adapt.training.networks import Networks, infer


def fit(source: Labelled, target: Tensor, config: TrainConfig, generator: Generator) -> Prediction:
    """Train the adversarial game; reject images whose most probable class is `unknown`."""
    num_known = num_classes(source)
    head = new_head(target, config)
    networks = Networks(head, nn.Linear(head.width, num_known + 1))
    of_source = source_batches(source, config, generator)
    of_target = target_batches(target, config, generator)

    def loss() -> Tensor:
        features, labels = next(of_source)
        against = reverse_gradient(networks.head(target[next(of_target)]))
        # The form `sample` of L_adv in scda is the loss of this paper.
        game = adversarial(networks.classifier(against), form="sample")
        return F.cross_entropy(networks.logits(features), labels) + game

    steps = total_steps(config, num_known, len(target))
    minimise([networks.head, networks.classifier], loss, steps, config)
    logits, adapted = infer(networks, target)
    predicted = logits.argmax(dim=1)
    labels = torch.where(predicted == num_known, UNKNOWN, predicted)
    return Prediction(labels, logits.softmax(dim=1)[:, -1], adapted)
