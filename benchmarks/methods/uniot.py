"""UniOT: optimal transport decides which target images are of known classes, and groups the rest.

Chang, Shi, Tuan, Wang 2022, "Unified Optimal Transport Framework for Universal Domain Adaptation",
https://arxiv.org/abs/2210.17067. Taken over with the authors' values for Office-31: source
cross-entropy on prototypes at temperature 0.1; unbalanced transport (regularisation 0.01, marginal
0.5) between target images and class prototypes with adaptive filling at a cosine of 0.7, whose
confident pairs teach known classes after 100 steps, the class marginal a moving average with 0.7;
balanced transport of target images and their nearest neighbours to 50 target prototypes
(0.05, three steps), each standing in for the other; both weighted by 0.1. Where the paper keeps a
queue of 2,000 recent target features, ours keeps one of every target image; its features come from
a projection that may be negative, ours from scda's head. The authors' rate is 1e-2 with inverse
decay (`decay_from`).
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
_WEIGHT = 0.1  # of both target losses
_GROUPS = 50  # target prototypes
_ALIKE = 0.7  # cosine from which an image counts as known when the filling is chosen
_MOVING = 0.7  # how much of the class marginal stays
_FIRST = 100  # steps without transport to classes
_REGULAR, _MARGINAL = 0.01, 0.5  # of the unbalanced transport
_SWEEPS = 100  # of it at most
_SETTLED = 1e-3  # relative change of its scaling that ends it


@dataclass(frozen=True)
class Plan:
    """What transport says of target images, N of them."""

    mass: Tensor  # (N,), the largest to any class
    classes: Tensor  # (N,), which it is
    known: Tensor  # (N,), whether the mass is more than an even share
    marginal: Tensor  # (K,), the mass that each class receives, sums to 1
    scaling: Tensor  # (K,), of the transport's last sweep

    @property
    def sure(self) -> Tensor:
        """Which known images, (N,), are of a class that receives an even share or more."""
        return self.known & (self.marginal >= 1 / len(self.marginal))[self.classes]


@dataclass(frozen=True)
class Classes:
    """The known classes as transport sees them from one step to the next."""

    marginal: Tensor  # (K,), sums to 1
    scaling: Tensor  # (K,), where the next transport's sweeps start


def fit(
    source: Labelled,
    target: Tensor,
    config: TrainConfig,
    generator: Generator,
    *,
    decay_from: float = 0.0,
) -> Prediction:
    """Train; reject what transport gives to no class with more than an even share of its mass."""
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
                wanted = plan.classes[rows][sure]
                total = total + _WEIGHT * F.cross_entropy(classifier(of_rows)[sure], wanted)
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
    """Return how far images and their nearest neighbours are from the groups of one another.

    Args:
        groups: The target prototypes.
        features: (B, D), length 1.
        rows: (B,), which rows of the memory they are.
        memory: (N, D), length 1, of the whole target; as many of it as there are groups fill up
            the transport, so that a batch need not hold all groups.
        generator: Where the randomness comes from.
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
    """Return shares (N, G) whose rows sum to 1 and whose columns to about N / G.

    Source: Cuturi 2013; Caron et al. 2020, https://arxiv.org/abs/2006.09882
    """
    plan = (cosines / regular).exp()
    for _ in range(sweeps):
        plan = plan / plan.sum(dim=0, keepdim=True)
        plan = plan / plan.sum(dim=1, keepdim=True)
    return plan


def transport(features: Tensor, prototypes: Tensor, classes: Classes, generator: Generator) -> Plan:
    """Return the plan between images (N, D) and class prototypes (K, D), all of length 1.

    Images are filled up until half of them look known, so that an even share parts both kinds.
    """
    cosines = features @ prototypes.T  # (N, K)
    known = int((cosines.max(dim=1).values > _ALIKE).sum())
    lacking = len(cosines) - 2 * known  # how many known ones; below 0 how many new ones
    if lacking > 0:
        plan = unbalanced_transport(cosines, classes, len(cosines))
        filling = cosines[plan.sure]
    else:  # halfway to the prototype that is farthest, nothing looks known
        farthest = prototypes[cosines.argmin(dim=1)]
        filling = F.normalize((features + farthest) / 2) @ prototypes.T
    if lacking and len(filling):
        drawn = torch.randint(len(filling), (abs(lacking),), generator=generator)
        cosines = torch.cat([cosines, filling[drawn]])
    return unbalanced_transport(cosines, classes, len(features))


def unbalanced_transport(cosines: Tensor, classes: Classes, count: int) -> Plan:
    """Return what the plan that carries even mass of images to classes says of the first `count`.

    Both marginals may be missed at a price.

    Args:
        cosines: (N, K).
        classes: Their marginal, and where the sweeps start.
        count: Images that are no filling.

    Source: Chizat et al. 2018, https://arxiv.org/abs/1607.05816
    """
    # A constant taken from the cosines scales the plan, which is normalised; so exp stays finite.
    kernel = ((cosines.double() - 1) / _REGULAR).exp().clamp_min(1e-300)
    power = _MARGINAL / (_MARGINAL + _REGULAR)
    wanted, scaling = classes.marginal.double(), classes.scaling
    for _ in range(_SWEEPS):
        of_images = (1 / len(cosines) / (kernel @ scaling)) ** power
        before, scaling = scaling, (wanted / (of_images @ kernel)) ** power
        if (scaling / before - 1).abs().max() < _SETTLED:
            break
    plan = of_images[:, None] * kernel * scaling
    plan = (plan / plan.sum()).float()
    mass, nearest = plan[:count].max(dim=1)
    return Plan(mass, nearest, mass > 1 / len(plan), plan.sum(dim=0), scaling)
