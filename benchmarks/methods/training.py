"""Shared parts of the methods: their predictions, network, number of steps and training loop."""

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
AUTHORS_RATE = 1e-2  # initial rate of new layers in most of the authors' programs
_DECAY, _POWER = 10, 0.75  # from Ganin and Lempitsky 2015, as in most of the papers


@dataclass(frozen=True)
class Prediction:
    """The predictions of a method for the target."""

    labels: Tensor  # (N,), 0 to K - 1, or UNKNOWN
    novelty_score: Tensor  # (N,), larger for new images; rejection is nearly a threshold on it
    features: Tensor  # (N, D), output of the trained head


# Arguments: the source, the target (N, D_backbone), the configuration and the generator.
Fit = Callable[[Labelled, Tensor, TrainConfig, Generator], Prediction]


def num_classes(source: Labelled) -> int:
    """Return K."""
    return int(source.labels.max()) + 1


def new_head(target: Tensor, config: TrainConfig) -> FeatureHead:
    """Return the head of F in scda for features (N, D_backbone)."""
    return FeatureHead(target.shape[1], config.head_widths)


def total_steps(config: TrainConfig, num_known: int, num_target: int) -> int:
    """Return the number of steps that scda trains in total: pre-training and all rounds."""
    later = config.rounds * config.steps_of_round(num_target, num_known)
    return config.pretrain_length(num_known) + later


def source_batches(
    source: Labelled, config: TrainConfig, generator: Generator
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield features (B, D_backbone) and labels (B,), sampled as in scda."""
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
    adam: float = 0,
    unit: Sequence[Tensor] = (),
) -> None:
    """Take `steps` steps of SGD, or of Adam.

    Args:
        modules: Modules to train.
        loss: Draws batches and returns a scalar.
        steps: Number of steps.
        config: Momentum, weight decay, and the rate if `decay_from` is 0.
        decay_from: Initial rate of the decay (1 + 10 p)^-0.75, with p from 0 to 1; 0 keeps the
            constant rate of scda.
        adam: Rate of Adam, without weight decay; 0 takes SGD.
        unit: Weights (C, D) whose rows are scaled to length 1 before every step. Otherwise they
            would grow, and a long row changes its direction slowly.
    """
    parameters = nn.ModuleList(modules).train().parameters()
    optimizer: torch.optim.Optimizer
    if adam:
        optimizer = torch.optim.Adam(parameters, lr=adam, fused=True)
    else:
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
    """Return the entropy of each row in nats, (N,)."""
    log_probs = logits.log_softmax(dim=1)
    return -(log_probs.exp() * log_probs).sum(dim=1)


def rejected_above(
    novelty_score: Tensor, threshold: float, known: Tensor, features: Tensor
) -> Prediction:
    """Return the known labels (N,) where `novelty_score` is at most the threshold, else UNKNOWN."""
    labels = torch.where(novelty_score > threshold, UNKNOWN, known)
    return Prediction(labels, novelty_score, features)


class Prototypes(nn.Module):
    """A linear layer without a bias on normalised inputs: scaled cosines to class prototypes."""

    def __init__(self, width: int, count: int, *, temperature: float) -> None:
        """Draw `count` prototypes of dimension `width`."""
        super().__init__()
        self.weight = nn.Parameter(F.normalize(torch.randn(count, width)))
        self.temperature = temperature

    def directions(self) -> Tensor:
        """Return the prototypes with length 1, (C, D)."""
        return F.normalize(self.weight)

    def forward(self, features: Tensor) -> Tensor:
        """Return logits (N, C): cosines divided by the temperature."""
        return F.normalize(features) @ self.directions().T / self.temperature
