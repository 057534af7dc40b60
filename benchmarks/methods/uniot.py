"""UniOT: optimal transport decides which target images are of known classes, and groups the rest.

Chang, Shi, Tuan, Wang 2022, "Unified Optimal Transport Framework for Universal Domain Adaptation",
https://arxiv.org/abs/2210.17067. The parts have the authors' values for Office-31: source
cross-entropy on prototypes at temperature 0.1; unbalanced transport (regularisation 0.01, marginal
0.5) between target images and class prototypes with adaptive filling at a cosine of 0.7, whose
confident pairs train the known classes after 100 steps, with a moving average (0.7) as the class
marginal; balanced transport of target images and their nearest neighbours to 50 target prototypes
(0.05, three steps), where the assignment of each is the label of the other. Both transport losses
have the weight 0.1. The paper keeps a queue of 2,000 recent target features; ours keeps the
features of all target images. Its features come from a projection and may be negative; ours come
from scda's head. The authors' rate is 1e-2 with inverse decay (`decay_from`).
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812 - as everybody writes it
from torch import Generator, Tensor

from benchmarks.methods.training import (
    UNKNOWN,
    Prediction,
    Prototypes,
    minimise,
    new_head,
    num_classes,
    source_batches,
    target_batches,
    total_steps,
)
from scda.adapt.config import TrainConfig
from scda.adapt.data.dataset import Labelled
from scda.adapt.training.networks import Networks, infer

_TEMPERATURE = 0.1
_WEIGHT = 0.1  # weight of each target loss
_GROUPS = 50  # number of target prototypes
_ALIKE = 0.7  # cosine from which an image counts as known when the filling is chosen
_MOVING = 0.7  # share of the old class marginal in its moving average
_FIRST = 100  # number of steps without transport to classes
_REGULAR, _MARGINAL = 0.01, 0.5  # regularisation and marginal penalty of unbalanced transport
_SWEEPS = 100  # largest number of its iterations
_SETTLED = 1e-3  # relative change of its scaling at which it stops


@dataclass(frozen=True)
class Plan:
    """The transport of N target images to the known classes."""

    mass: Tensor  # (N,), largest mass to any class
    classes: Tensor  # (N,), class of the largest mass
    known: Tensor  # (N,), whether the mass is more than an even share
    marginal: Tensor  # (K,), mass that each class receives, sums to 1
    scaling: Tensor  # (K,), scaling of the last iteration

    @property
    def sure(self) -> Tensor:
        """Whether an image is known and its class receives at least an even share, (N,)."""
        return self.known & (self.marginal >= 1 / len(self.marginal))[self.classes]


@dataclass(frozen=True)
class Classes:
    """The state of the known classes between two transports."""

    marginal: Tensor  # (K,), sums to 1
    scaling: Tensor  # (K,), initial scaling of the next transport


def fit(
    source: Labelled,
    target: Tensor,
    config: TrainConfig,
    generator: Generator,
    *,
    decay_from: float = 0.0,
) -> Prediction:
    """Train; reject images of which no class receives more than an even share of mass."""
    num_known = num_classes(source)
    head = new_head(target, config)
    classifier = Prototypes(head.width, num_known, temperature=_TEMPERATURE)
    groups = Prototypes(head.width, _GROUPS, temperature=_TEMPERATURE)
    networks = Networks(head, classifier)
    memory = F.normalize(infer(networks, target)[1])
    classes = Classes(
        torch.full((num_known,), 1 / num_known), torch.ones(num_known, dtype=torch.float64)
    )
    of_source = source_batches(source, config, generator)
    of_target = target_batches(target, config, generator)
    step = 0

    def loss() -> Tensor:
        nonlocal classes, step
        step += 1
        features, labels = next(of_source)
        rows = next(of_target)
        of_rows = head(target[rows])
        total = F.cross_entropy(networks.logits(features), labels)
        total = total + _WEIGHT * grouping(groups, F.normalize(of_rows), rows, memory, generator)
        memory[rows] = F.normalize(of_rows.detach())
        if step > _FIRST:
            plan = transport(memory, classifier.directions().detach(), classes, generator)
            moved = _MOVING * classes.marginal + (1 - _MOVING) * plan.marginal
            classes = Classes(moved, plan.scaling)
            sure = plan.sure[rows]
            if sure.any():
                pseudo = plan.classes[rows][sure]
                total = total + _WEIGHT * F.cross_entropy(classifier(of_rows)[sure], pseudo)
        return total

    steps = total_steps(config, num_known, len(target))
    modules = [head, classifier, groups]
    unit = [classifier.weight, groups.weight]
    minimise(modules, loss, steps, config, decay_from=decay_from, unit=unit)
    adapted = infer(networks, target)[1]
    prototypes = classifier.directions().detach()
    plan = transport(F.normalize(adapted), prototypes, classes, generator)
    return Prediction(torch.where(plan.known, plan.classes, UNKNOWN), -plan.mass, adapted)


def grouping(
    groups: Prototypes, features: Tensor, rows: Tensor, memory: Tensor, generator: Generator
) -> Tensor:
    """Return the cross-entropy of images against the groups of their neighbours, and vice versa.

    Args:
        groups: Target prototypes.
        features: Features of a batch, (B, D), rows of length 1.
        rows: Rows of the memory that belong to the batch, (B,).
        memory: Features of the whole target, (N, D), rows of length 1. A sample of it, one image
            per group, is added to the transport, so that a batch need not contain all groups.
        generator: Source of the randomness.
    """
    memory = memory.index_copy(0, rows, features)
    cosines = (features @ memory.T).scatter(1, rows[:, None], -1.0)
    nearest = memory[cosines.argmax(dim=1)]
    filling = memory[torch.randint(len(memory), (_GROUPS,), generator=generator)]
    logits = groups(torch.cat([features, nearest, filling]))
    shares = balanced_transport(logits.detach() * _TEMPERATURE)
    count = len(features)
    itself, neighbour = shares[:count], shares[count : 2 * count]
    of_itself, of_neighbour = logits[:count], logits[count : 2 * count]
    globally = F.cross_entropy(of_itself, itself)
    locally = F.cross_entropy(of_itself, neighbour) + F.cross_entropy(of_neighbour, itself)
    return (globally + locally / 2) / 2


def balanced_transport(cosines: Tensor, *, regular: float = 0.05, sweeps: int = 3) -> Tensor:
    """Return assignments (N, G) whose rows sum to 1 and whose columns sum to about N / G.

    Source: Cuturi 2013; Caron et al. 2020, https://arxiv.org/abs/2006.09882
    """
    plan = (cosines / regular).exp()
    for _ in range(sweeps):
        plan = plan / plan.sum(dim=0, keepdim=True)
        plan = plan / plan.sum(dim=1, keepdim=True)
    return plan


def transport(features: Tensor, prototypes: Tensor, classes: Classes, generator: Generator) -> Plan:
    """Return the plan between images (N, D) and class prototypes (K, D), all of length 1.

    Filling is added until half of the images appear known, so that an even share separates both.
    """
    cosines = features @ prototypes.T  # (N, K)
    known = int((cosines.max(dim=1).values > _ALIKE).sum())
    lacking = len(cosines) - 2 * known  # number of known ones to add; below 0, of new ones
    if lacking > 0:
        plan = unbalanced_transport(cosines, classes, len(cosines))
        filling = cosines[plan.sure]
    else:  # halfway to the farthest prototype, an image resembles no class
        farthest = prototypes[cosines.argmin(dim=1)]
        filling = F.normalize((features + farthest) / 2) @ prototypes.T
    if lacking and len(filling):
        drawn = torch.randint(len(filling), (abs(lacking),), generator=generator)
        cosines = torch.cat([cosines, filling[drawn]])
    return unbalanced_transport(cosines, classes, len(features))


def unbalanced_transport(cosines: Tensor, classes: Classes, count: int) -> Plan:
    """Return the plan of unbalanced transport for the first `count` images.

    All images have the same mass; deviations from both marginals are penalised.

    Args:
        cosines: Cosines between images and prototypes, (N, K).
        classes: Marginal of the classes and initial scaling.
        count: Number of images without the filling.

    Source: Chizat et al. 2018, https://arxiv.org/abs/1607.05816
    """
    # Subtracting a constant only scales the plan, which is normalised, and keeps exp finite.
    kernel = ((cosines.double() - 1) / _REGULAR).exp().clamp_min(1e-300)
    power = _MARGINAL / (_MARGINAL + _REGULAR)
    marginal, scaling = classes.marginal.double(), classes.scaling
    for _ in range(_SWEEPS):
        of_images = (1 / len(cosines) / (kernel @ scaling)) ** power
        before, scaling = scaling, (marginal / (of_images @ kernel)) ** power
        if (scaling / before - 1).abs().max() < _SETTLED:
            break
    plan = of_images[:, None] * kernel * scaling
    plan = (plan / plan.sum()).float()
    mass, nearest = plan[:count].max(dim=1)
    return Plan(mass, nearest, mass > 1 / len(plan), plan.sum(dim=0), scaling)
