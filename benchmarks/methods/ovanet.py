"""OVANet: one binary classifier per class, which rejects images of other classes.

Saito and Saenko 2021, "OVANet: One-vs-All Network for Universal Domain Adaptation",
https://arxiv.org/abs/2104.03344: a closed-set classifier, K one-vs-all classifiers trained with the
hardest negative alone, and the entropy of the one-vs-all outputs, averaged over classes and
minimised on the target with weight 0.1. As in the authors' program, the second of these losses is
halved, and the rows of the one-vs-all classifiers have length 1. The rate is 1e-2 with inverse
decay (`decay_from`).
"""

import torch
import torch.nn.functional as F  # noqa: N812 - as everybody writes it
from torch import Generator, Tensor, nn

from benchmarks.methods.training import (
    Prediction,
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

_ONE_VS_ALL, _OPEN_ENTROPY = 0.5, 0.1  # weights


def fit(
    source: Labelled,
    target: Tensor,
    config: TrainConfig,
    generator: Generator,
    *,
    decay_from: float = 0.0,
) -> Prediction:
    """Train both kinds of classifier; reject images that the most probable class's one rejects."""
    num_known = num_classes(source)
    head = new_head(target, config)
    networks = Networks(head, nn.Linear(head.width, num_known))
    one_vs_all = OneVsAll(head.width, num_known)
    of_source = source_batches(source, config, generator)
    of_target = target_batches(target, config, generator)

    def loss() -> Tensor:
        features, labels = next(of_source)
        features = head(features)
        closed = F.cross_entropy(networks.classifier(features), labels)
        is_of_class = one_vs_all(head(target[next(of_target)]))
        return (
            closed
            + _ONE_VS_ALL * hard_negatives(one_vs_all(features), labels)
            + _OPEN_ENTROPY * open_entropy(is_of_class)
        )

    steps = total_steps(config, num_known, len(target))
    modules = [head, networks.classifier, one_vs_all]
    unit = [one_vs_all.answers.weight]
    minimise(modules, loss, steps, config, decay_from=decay_from, unit=unit)
    logits, adapted = infer(networks, target)
    closest = logits.argmax(dim=1)
    with torch.no_grad():
        accepted = one_vs_all(adapted).sigmoid().gather(1, closest[:, None])[:, 0]
    return rejected_above(1 - accepted, 0.5, closest, adapted)


class OneVsAll(nn.Module):
    """One-vs-all logits of each class: (N, D) → (N, K).

    The weight vectors of `yes` and `no` have length 1, so that long weights cannot add confidence.
    """

    def __init__(self, width: int, num_known: int) -> None:
        """Draw both weight vectors of every class."""
        super().__init__()
        self.answers = nn.Linear(width, 2 * num_known, bias=False)

    def forward(self, features: Tensor) -> Tensor:
        """Return the logits of `yes` minus those of `no`; the sigmoid is the softmax of both."""
        yes, no = self.answers(features).chunk(2, dim=1)
        logits: Tensor = yes - no
        return logits


def hard_negatives(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the mean of -log p(yes, own class) - log p(no, hardest other class).

    Args:
        logits: One-vs-all logits, (N, K).
        labels: Labels, (N,).
    """
    of_class = F.one_hot(labels, logits.shape[1]).bool()
    accepted = F.logsigmoid(logits[of_class])
    refused = F.logsigmoid(-logits).masked_fill(of_class, 0.0).min(dim=1).values
    return -(accepted + refused).mean()


def open_entropy(logits: Tensor) -> Tensor:
    """Return the mean entropy of all one-vs-all outputs (N, K), in nats."""
    probs = logits.sigmoid()
    return -(probs * F.logsigmoid(logits) + (1 - probs) * F.logsigmoid(-logits)).mean()
