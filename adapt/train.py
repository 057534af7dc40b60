"""The two training stages of SCDA on features, and the one loop both run in."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - as everybody writes it
from torch import Generator, Tensor, nn
from torch.optim.swa_utils import update_bn

from scda.adapt.batches import labelled, shuffled
from scda.adapt.config import TrainConfig
from scda.adapt.losses import adversarial, class_confusion, class_correlation, reverse_gradient
from scda.models.errors import GateError

# Gets the step and its losses, none where it was skipped; a true answer stops the stage.
OnStep = Callable[[int, dict[str, float]], bool | None]
_BATCHNORM_ROWS = 4096
_MOST_SKIPPED = 3  # steps in a row without a finite loss


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


@dataclass(frozen=True)
class Progress:
    """How far a stage has come: with its weights and generator, all that is needed to go on."""

    step: int = 0
    skipped: tuple[int, ...] = ()  # steps without a finite loss
    optimizer: dict[str, Any] | None = None


class Stopped(Exception):  # noqa: N818 - no error
    """A stage was stopped after a step."""

    def __init__(self, progress: Progress) -> None:
        """Keep how far it came."""
        super().__init__(f"stopped after step {progress.step}")
        self.progress = progress


class Diverged(GateError):  # noqa: N818 - as the others
    """A stage lost its way: no finite loss several times in a row, or weights that are none."""


def pretrain(
    networks: Networks,
    source: Labelled,
    target: Tensor,
    config: TrainConfig,
    generator: Generator,
    on_step: OnStep,
    progress: Progress = Progress(),
) -> tuple[int, ...]:
    """Separate known from unknown target images by the game between C and F.

    C minimises L_s + L_adv + L_kcc, F minimises L_s - L_adv + L_kcc.

    Args:
        networks: Trained in place.
        source: With labels 0 to K - 1.
        target: (M, D_backbone).
        config: Of the run.
        generator: Of the batches, as it was before the first step.
        on_step: Called after every step.
        progress: Of an earlier, stopped call.

    Returns:
        The steps that were skipped, for want of a finite loss.

    Raises:
        Stopped: If `on_step` asks for it.
        Diverged: If a smaller learning rate is needed.

    Source: SCDA, Eq. 5 and 6.
    """
    num_known = int(source.labels.max()) + 1
    source_batches = labelled(source.labels, config.batch_size, generator, sampling=config.sampling)
    target_batches = shuffled(len(target), config.batch_size, generator)

    def losses(batch: Tensor, target_batch: Tensor) -> dict[str, Tensor]:
        features = networks.head(target[target_batch])
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

    batches = zip(source_batches, target_batches, strict=False)
    batches_to_go = islice(batches, progress.step, config.pretrain_length(num_known))
    return _minimise(networks, losses, batches_to_go, config, on_step, progress)


def retrain(
    networks: Networks,
    source: Labelled,
    target: Tensor,
    pseudo: Labelled,
    config: TrainConfig,
    generator: Generator,
    on_step: OnStep,
    progress: Progress = Progress(),
) -> tuple[int, ...]:
    """Teach F and a fresh C the discovered classes: L_s + L_t + L_tcc; else as `pretrain`.

    Source: SCDA, Eq. 9 to 11.
    """
    size, sampling = config.batch_size, config.sampling
    source_batches = labelled(source.labels, size, generator, sampling=sampling)
    pseudo_batches = labelled(pseudo.labels, size, generator, sampling=sampling)
    target_batches = shuffled(len(target), size, generator)

    def losses(batch: Tensor, pseudo_batch: Tensor, target_batch: Tensor) -> dict[str, Tensor]:
        # Source and target never share a pass: batch norm would mix their statistics.
        of_source = networks.logits(source.features[batch])
        of_pseudo = networks.logits(pseudo.features[pseudo_batch])
        of_target = networks.logits(target[target_batch])
        correlation = class_correlation(of_target, temperature=config.temperature)
        return {
            "source": F.cross_entropy(of_source, source.labels[batch]),
            "pseudo": F.cross_entropy(of_pseudo, pseudo.labels[pseudo_batch]),
            "confusion": class_confusion(
                correlation, num_classes=correlation.shape[1], rows=config.confusion_rows
            ),
        }

    batches = zip(source_batches, pseudo_batches, target_batches, strict=False)
    batches_to_go = islice(batches, progress.step, config.round_length(len(target)))
    return _minimise(networks, losses, batches_to_go, config, on_step, progress)


def _minimise(
    networks: Networks,
    losses: Callable[..., dict[str, Tensor]],
    batches: Iterator[tuple[Tensor, ...]],
    config: TrainConfig,
    on_step: OnStep,
    progress: Progress,
) -> tuple[int, ...]:
    """The loop: for every batch down the sum of the losses, unweighted as in the paper."""
    modules = nn.ModuleList([networks.head, networks.classifier])
    optimizer = torch.optim.SGD(
        modules.parameters(),
        lr=config.lr,
        momentum=config.momentum,
        weight_decay=config.weight_decay,
    )
    if progress.optimizer:
        optimizer.load_state_dict(progress.optimizer)
    step, skipped = progress.step, progress.skipped
    modules.train()
    for step, batch in enumerate(batches, progress.step + 1):
        by_name = losses(*batch)
        total = torch.stack(list(by_name.values())).sum()
        optimizer.zero_grad(set_to_none=True)
        if total.isfinite():
            total.backward()
            optimizer.step()
        else:
            skipped, by_name = _skip(step, skipped, config), {}
        if on_step(step, {name: loss.item() for name, loss in by_name.items()}):
            raise Stopped(Progress(step, skipped, optimizer.state_dict()))
    if not all(tensor.isfinite().all() for tensor in modules.state_dict().values()):
        raise _diverged(step, config)
    return skipped


def _skip(step: int, skipped: tuple[int, ...], config: TrainConfig) -> tuple[int, ...]:
    skipped = (*skipped, step)
    if skipped[-_MOST_SKIPPED:] == tuple(range(step - _MOST_SKIPPED + 1, step + 1)):
        raise _diverged(step, config)
    return skipped


def _diverged(step: int, config: TrainConfig) -> Diverged:
    return Diverged(f"training diverged at step {step}; try a smaller --lr than {config.lr}")


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
