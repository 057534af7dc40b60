"""What the methods share: their answer, their network, the number of steps and the loop."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812 - as everybody writes it
from torch import Generator, Tensor, nn

from scda.adapt.config import TrainConfig
from scda.adapt.data.dataset import Labelled
from scda.adapt.training.sampling import labelled, shuffled
from scda.models.networks.network import FeatureHead

UNKNOWN = -1
AUTHORS_RATE = 1e-2  # of most programs here, where it falls, for layers that are not pre-trained
_DECAY, _POWER = 10, 0.75  # of Ganin and Lempitsky 2015, which most papers here take over


@dataclass(frozen=True)
class Prediction:
    """What a method says of the target."""

    labels: Tensor  # (N,), 0 to K - 1, or UNKNOWN
    novelty_score: Tensor  # (N,), the larger the newer; rejection is (nearly) a threshold on it
    features: Tensor  # (N, D), of the trained head


# The source, the target (N, D_backbone), the setting and where the randomness comes from.
Fit = Callable[[Labelled, Tensor, TrainConfig, Generator], Prediction]


def num_classes(source: Labelled) -> int:
    """Return K."""
    return int(source.labels.max()) + 1


def new_head(target: Tensor, config: TrainConfig) -> FeatureHead:
    """Return the trained part of F as scda has it, for features (N, D_backbone)."""
    return FeatureHead(target.shape[1], config.head_widths)


def total_steps(config: TrainConfig, num_known: int, num_target: int) -> int:
    """Return how many steps scda trains in all: pre-training and every round."""
    later = config.rounds * config.round_length(num_target)
    return config.pretrain_length(num_known) + later


def source_batches(
    source: Labelled, config: TrainConfig, generator: Generator
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield features (B, D_backbone) and labels (B,), drawn as scda draws them."""
    drawn = labelled(source.labels, config.batch_size, generator, sampling=config.sampling)
    return ((source.features[batch], source.labels[batch]) for batch in drawn)


def target_batches(target: Tensor, config: TrainConfig, generator: Generator) -> Iterator[Tensor]:
    """Yield rows of the target, (B,), pass after pass."""
    return shuffled(len(target), config.batch_size, generator)


def minimise(
    modules: Sequence[nn.Module],
    loss: Callable[[], Tensor],
    steps: int,
    config: TrainConfig,
    *,
    decay_from: float = 0,
    unit: Sequence[Tensor] = (),
) -> None:
    """Take `steps` steps of SGD.

    Args:
        modules: What is trained.
        loss: Draws batches and returns a scalar.
        steps: How many.
        config: Momentum, weight decay, and the rate where `decay_from` is 0.
        decay_from: Where the rate starts that falls as (1 + 10 p)^-0.75, p from 0 to 1; 0 keeps
            scda's constant rate.
        unit: Weights whose rows (C, D) every step starts at length 1. Left alone they would grow,
            and a long row turns slowly.
    """
    parameters = nn.ModuleList(modules).train().parameters()
    optimizer = torch.optim.SGD(
        parameters,
        lr=decay_from or config.lr,
        momentum=config.momentum,
        weight_decay=config.weight_decay,
        fused=True,
    )
    for step in range(steps):
        if decay_from:
            optimizer.param_groups[0]["lr"] = decay_from * (1 + _DECAY * step / steps) ** -_POWER
        for weight in unit:
            weight.data = F.normalize(weight.data)
        optimizer.zero_grad(set_to_none=True)
        loss().backward()
        optimizer.step()


def entropy(logits: Tensor) -> Tensor:
    """Return each row's entropy in nats, (N,)."""
    log_probs = logits.log_softmax(dim=1)
    return -(log_probs.exp() * log_probs).sum(dim=1)


def rejected_above(
    novelty_score: Tensor, threshold: float, known: Tensor, features: Tensor
) -> Prediction:
    """Return the known labels (N,) where `novelty_score` is at most the threshold, else UNKNOWN."""
    labels = torch.where(novelty_score > threshold, UNKNOWN, known)
    return Prediction(labels, novelty_score, features)


class Prototypes(nn.Module):
    """A linear layer on unit length without a bias: cosines to class prototypes, scaled."""

    def __init__(self, width: int, count: int, *, temperature: float) -> None:
        """Draw `count` prototypes of `width` numbers."""
        super().__init__()
        self.weight = nn.Parameter(F.normalize(torch.randn(count, width)))
        self.temperature = temperature

    def directions(self) -> Tensor:
        """Return the prototypes with length 1, (C, D)."""
        return F.normalize(self.weight)

    def forward(self, features: Tensor) -> Tensor:
        """Return logits (N, C): cosines divided by the temperature."""
        return F.normalize(features) @ self.directions().T / self.temperature
