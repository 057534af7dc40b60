"""The two training stages of SCDA and the loop that both share."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - the usual name
from torch import Generator, Tensor, nn

from scda.adapt.config import TrainConfig
from scda.adapt.data.dataset import Labelled
from scda.adapt.runtime import distributed
from scda.adapt.training.inputs import Inputs, PseudoLabels
from scda.adapt.training.losses import (
    adversarial,
    class_confusion,
    class_correlation,
    reverse_gradient,
)
from scda.adapt.training.networks import Networks
from scda.adapt.training.sampling import labelled, shuffled
from scda.models.errors import GateError

# Gets the number of a step and its losses, none if it was skipped; a true result stops the stage.
OnStep = Callable[[int, dict[str, float]], bool | None]
_MOST_SKIPPED = 3  # steps in a row without a finite loss


@dataclass(frozen=True)
class Progress:
    """Position inside a stage; with weights and generator, all that is needed to continue it."""

    step: int = 0
    skipped: tuple[int, ...] = ()  # steps without a finite loss
    optimizer: dict[str, Any] | None = None
    scaler: dict[str, Any] | None = None  # state of the loss scaler; empty unless fp16


class Stopped(Exception):  # noqa: N818 - not an error
    """A stage was stopped after a step."""

    def __init__(self, progress: Progress) -> None:
        """Keep the position inside the stage."""
        super().__init__(f"stopped after step {progress.step}")
        self.progress = progress


class Diverged(GateError):  # noqa: N818 - named like the other outcomes
    """A stage diverged: several losses in a row, or weights at its end, are not finite."""


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
        networks: Networks, trained in place; each member of an ensemble plays its own game on the
            same batches.
        source: Source features with labels 0 to K - 1.
        target: Target features, (M, D_backbone).
        config: Configuration of the run.
        generator: Generator of the batches, in its state before the first step.
        on_step: Called after every step.
        progress: Position at which an earlier call was stopped.

    Returns:
        The steps that were skipped because their loss was not finite.

    Raises:
        Stopped: If `on_step` returns a true value.
        Diverged: If losses or weights are not finite; a smaller learning rate helps.

    Source: SCDA, Eq. 5 and 6.
    """
    num_known, temperature = int(source.labels.max()) + 1, config.temperature
    source_batches = labelled(source.labels, config.batch_size, generator, sampling=config.sampling)
    target_batches = shuffled(len(target), config.batch_size, generator)

    def game(member: Networks, batch: Tensor, target_batch: Tensor) -> dict[str, Tensor]:
        features = member.features(target[target_batch])
        correlation = class_correlation(member.classify(features), temperature=temperature)
        against = member.classify(reverse_gradient(features))
        return {
            "source": _cross_entropy(member.logits(source.features[batch]), source.labels[batch]),
            "adversarial": adversarial(against, form=config.adversary, temperature=temperature),
            "known_confusion": class_confusion(
                correlation, num_classes=num_known, rows=config.confusion_rows
            ),
        }

    members = networks.members

    def losses(batch: Tensor, target_batch: Tensor) -> dict[str, Tensor]:
        games = [game(member, batch, target_batch) for member in members]
        return {name: torch.stack([of[name] for of in games]).mean() for name in games[0]}

    batches = zip(source_batches, target_batches, strict=False)
    batches_to_go = islice(batches, progress.step, config.pretrain_length(num_known))
    return _minimise(networks, losses, batches_to_go, config, on_step, progress)


def retrain(
    networks: Networks,
    inputs: Inputs,
    source_labels: Tensor,
    pseudo: PseudoLabels,
    config: TrainConfig,
    generator: Generator,
    on_step: OnStep,
    progress: Progress = Progress(),
    *,
    source_rows: Tensor | None = None,
) -> tuple[int, ...]:
    """Train F and a new C on the discovered classes: minimise L_s + L_t + L_tcc.

    Arguments, result and errors are those of `pretrain`; `source_rows` are the rows of the source
    that have the labels, None for all.

    Source: SCDA, Eq. 9 to 11.
    """
    size, sampling = config.batch_size, config.sampling
    source_batches = labelled(source_labels, size, generator, sampling=sampling)
    pseudo_batches = labelled(pseudo.labels, size, generator, sampling=sampling)
    target_batches = shuffled(inputs.num_target, size, generator)
    drawn = zip(source_batches, pseudo_batches, target_batches, strict=False)
    # All steps are drawn before the first one, so that reading images ahead does not change the
    # state of the generator.
    classes = int(pseudo.labels.max()) + 1
    steps = list(islice(drawn, config.steps_of_round(inputs.num_target, classes)))
    of_source = torch.arange(len(source_labels)) if source_rows is None else source_rows
    plan = [(of_source[source], pseudo.rows[rows], target) for source, rows, target in steps]

    def losses(views: tuple[Tensor, ...], step: tuple[Tensor, ...]) -> dict[str, Tensor]:
        source, rows, _ = step
        # Source and target never share a pass: batch norm would mix their statistics.
        of_source, of_pseudo, of_target = map(networks.logits, views)
        correlation = class_correlation(of_target, temperature=config.temperature)
        return {
            "source": _cross_entropy(of_source, source_labels[source]),
            "pseudo": _cross_entropy(of_pseudo, pseudo.labels[rows]),
            "confusion": class_confusion(
                correlation, num_classes=correlation.shape[1], rows=config.confusion_rows
            ),
        }

    done = progress.step
    to_go = zip(inputs.batches(plan, generator, done=done), steps[done:], strict=True)
    return _minimise(networks, losses, to_go, config, on_step, progress)


def _cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    return F.cross_entropy(logits, labels.to(logits.device, non_blocking=True))


def _minimise(
    networks: Networks,
    losses: Callable[..., dict[str, Tensor]],
    batches: Iterator[tuple[Any, ...]],
    config: TrainConfig,
    on_step: OnStep,
    progress: Progress,
) -> tuple[int, ...]:
    """Minimise the unweighted sum of the losses, as in the paper, batch after batch.

    The losses of an ensemble are means; each member gets the gradient of its own.
    """
    modules, optimizer = networks.modules, _optimizer(networks, config)
    num_members = 1 + len(networks.others)
    scaler = torch.amp.GradScaler(networks.device.type, enabled=config.precision == "fp16")
    if progress.optimizer:
        optimizer.load_state_dict(progress.optimizer)
    if progress.scaler:
        scaler.load_state_dict(progress.scaler)
    step, skipped = progress.step, progress.skipped
    modules.train()
    for step, batch in enumerate(batches, progress.step + 1):
        by_name = losses(*batch)
        total = num_members * torch.stack(list(by_name.values())).sum()
        optimizer.zero_grad(set_to_none=True)
        if total.isfinite():
            scaler.scale(total).backward()
            distributed.average_gradients(modules)
            if config.clip_grad:
                scaler.unscale_(optimizer)
                nn.utils.clip_grad_norm_(modules.parameters(), config.clip_grad)
            scaler.step(optimizer)
            scaler.update()
        else:
            skipped, by_name = _skip(step, skipped, config), {}
        if on_step(step, {name: loss.item() for name, loss in by_name.items()}):
            distributed.average_statistics(modules)
            raise Stopped(Progress(step, skipped, optimizer.state_dict(), scaler.state_dict()))
    distributed.average_statistics(modules)
    if not all(tensor.isfinite().all() for tensor in modules.state_dict().values()):
        raise _diverged(step, config)
    return skipped


def _optimizer(networks: Networks, config: TrainConfig) -> torch.optim.SGD:
    """Return the optimiser of all learning weights; the backbone has its own, smaller rate."""
    heads = (networks.head, networks.classifier, networks.others)
    new = [weight for module in heads for weight in module.parameters()]
    learnt = [weight for weight in networks.backbone.parameters() if weight.requires_grad]
    own: dict[str, Any] = {"params": learnt, "lr": config.lr * config.backbone_lr_scale}
    return torch.optim.SGD(
        [{"params": new}, own],
        lr=config.lr,
        momentum=config.momentum,
        weight_decay=config.weight_decay,
    )


def _skip(step: int, skipped: tuple[int, ...], config: TrainConfig) -> tuple[int, ...]:
    skipped = (*skipped, step)
    if skipped[-_MOST_SKIPPED:] == tuple(range(step - _MOST_SKIPPED + 1, step + 1)):
        raise _diverged(step, config)
    return skipped


def _diverged(step: int, config: TrainConfig) -> Diverged:
    return Diverged(f"training diverged at step {step}; try a smaller --lr than {config.lr}")
