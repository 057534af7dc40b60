"""The two training stages of SCDA on features, and the one loop both run in."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812 - as everybody writes it
from torch import Generator, Tensor, nn
from torch.optim.swa_utils import update_bn

from scda.adapt.batches import labelled, shuffled
from scda.adapt.config import TrainConfig
from scda.adapt.losses import adversarial, class_confusion, class_correlation, reverse_gradient
from scda.models.errors import GateError

OnStep = Callable[[int, dict[str, float]], None]
_BATCHNORM_ROWS = 4096


@dataclass(frozen=True)
class Labelled:
    """Images with a class: the source, or target images with pseudo-labels."""

    features: Tensor  # (N, D_backbone)
    labels: Tensor  # (N,)


@dataclass
class Networks:
    """The trained part of F, and C, which is replaced in every round."""

    head: nn.Module  # (N, D_backbone) → (N, D)
    classifier: nn.Module  # (N, D) → (N, C)

    def logits(self, features: Tensor) -> Tensor:
        """Return C(F(x)), (N, C), of backbone features."""
        logits: Tensor = self.classifier(self.head(features))
        return logits


def pretrain(
    networks: Networks,
    source: Labelled,
    target: Tensor,
    config: TrainConfig,
    generator: Generator,
    on_step: OnStep,
) -> None:
    """Separate known from unknown target images by the game between C and F.

    C minimises L_s + L_adv + L_kcc, F minimises L_s - L_adv + L_kcc.

    Source: SCDA, Eq. 5 and 6.
    """
    num_known = int(source.labels.max()) + 1
    source_batches = labelled(source.labels, config.batch_size, generator, sampling=config.sampling)
    target_batches = shuffled(len(target), config.batch_size, generator)

    def losses() -> dict[str, Tensor]:
        batch = next(source_batches)
        features = networks.head(target[next(target_batches)])
        correlation = class_correlation(
            networks.classifier(features), temperature=config.temperature
        )
        against = networks.classifier(reverse_gradient(features))
        return {
            "source": F.cross_entropy(
                networks.logits(source.features[batch]), source.labels[batch]
            ),
            "adversarial": adversarial(
                against, form=config.adversary, temperature=config.temperature
            ),
            "known_confusion": class_confusion(
                correlation, num_classes=num_known, rows=config.confusion_rows
            ),
        }

    _minimise(networks, losses, config.pretrain_length(num_known), config, on_step)


def retrain(
    networks: Networks,
    source: Labelled,
    target: Tensor,
    pseudo: Labelled,
    config: TrainConfig,
    generator: Generator,
    on_step: OnStep,
) -> None:
    """Teach F and a fresh C the discovered classes: L_s + L_t + L_tcc.

    Source: SCDA, Eq. 9 to 11.
    """
    size, sampling = config.batch_size, config.sampling
    source_batches = labelled(source.labels, size, generator, sampling=sampling)
    pseudo_batches = labelled(pseudo.labels, size, generator, sampling=sampling)
    target_batches = shuffled(len(target), size, generator)

    def losses() -> dict[str, Tensor]:
        batch, pseudo_batch = next(source_batches), next(pseudo_batches)
        # Source and target never share a pass: batch norm would mix their statistics.
        of_source = networks.logits(source.features[batch])
        of_pseudo = networks.logits(pseudo.features[pseudo_batch])
        of_target = networks.logits(target[next(target_batches)])
        correlation = class_correlation(of_target, temperature=config.temperature)
        return {
            "source": F.cross_entropy(of_source, source.labels[batch]),
            "pseudo": F.cross_entropy(of_pseudo, pseudo.labels[pseudo_batch]),
            "confusion": class_confusion(
                correlation, num_classes=correlation.shape[1], rows=config.confusion_rows
            ),
        }

    steps = config.round_steps or max(1, len(target) // config.batch_size)
    _minimise(networks, losses, steps, config, on_step)


def _minimise(
    networks: Networks,
    losses: Callable[[], dict[str, Tensor]],
    steps: int,
    config: TrainConfig,
    on_step: OnStep,
) -> None:
    """The loop: `steps` times the sum of the losses, unweighted as in the paper."""
    modules = nn.ModuleList([networks.head, networks.classifier])
    optimizer = torch.optim.SGD(
        modules.parameters(),
        lr=config.lr,
        momentum=config.momentum,
        weight_decay=config.weight_decay,
    )
    modules.train()
    for step in range(1, steps + 1):
        by_name = losses()
        total = torch.stack(list(by_name.values())).sum()
        if not total.isfinite():
            raise GateError(
                f"training diverged at step {step}; try a smaller --lr than {config.lr}"
            )
        optimizer.zero_grad(set_to_none=True)
        total.backward()
        optimizer.step()
        on_step(step, {name: loss.item() for name, loss in by_name.items()})


@torch.no_grad()
def infer(networks: Networks, features: Tensor) -> tuple[Tensor, Tensor]:
    """Return logits (N, C) and F's features (N, D) with the stored batch statistics."""
    networks.head.eval()
    networks.classifier.eval()
    parts = [networks.head(rows) for rows in features.split(_BATCHNORM_ROWS)]
    adapted = torch.cat(parts)
    return networks.classifier(adapted), adapted


def refresh_batchnorm(networks: Networks, target: Tensor) -> None:
    """Make the stored batch statistics those of the whole target, for this F (choice 21).

    A large target goes in parts of one size, each a sample of the whole: their mean is taken.
    """
    parts = math.ceil(len(target) / _BATCHNORM_ROWS)
    update_bn([target[part::parts] for part in range(parts)], networks.head)
