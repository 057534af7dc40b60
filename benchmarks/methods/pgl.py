"""PGL: a graph of source and target images; each round calls some of the target known or unknown.

Luo, Wang, Huang, Baktashmotlagh 2020, "Progressive Graph Learning for Open-Set Domain Adaptation",
https://arxiv.org/abs/2006.12087. In a batch of both domains an edge network gives the similarity of
every pair from the distance of their features, and a node network classifies an image by its own
features and the neighbours' mean; focal loss on nodes (weight mu), cross-entropy on edges between
labelled images, an adversary between domains (weight gamma) that leaves out what is called unknown.
In each of 1 / alpha rounds alpha of the target is labelled for good: a share beta of that, the
surest, by class, and the least sure as unknown. After the last round all is; that is the answer.

**beta says how much of the target is known, and no user knows that.** The authors give 0.1 to 0.9,
none for Office-31; here it is 0.6 for every target, as their README has it for VisDA-18. mu, gamma
and alpha are their program's. Otherwise simpler: networks go on from round to round instead of
starting anew, pseudo-labelled images come in the target's batches instead of in the source's
places, edges are learnt before they are normalised, and scda's SGD stands for Adam. The first round
has scda's pre-training steps and what is left when the others share the rest evenly.
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
from scda.adapt.training.losses import reverse_gradient
from scda.models.networks.network import FeatureHead

NOT_YET = -2  # of a target image that has no label, neither a class nor UNKNOWN
_ROUNDS = 10  # 1 / alpha
_KNOWN_SHARE = 0.6  # beta
_NODES, _DOMAINS = 0.3, 0.4  # mu and gamma
_FOCUS = 2  # of the focal loss
_HIDDEN = 64  # of the edge network


class Graph(nn.Module):
    """One layer of edges and nodes: features (N, D) → logits (N, K), edge logits (N, N)."""

    def __init__(self, width: int, num_known: int) -> None:
        """Make both networks for features of `width` numbers."""
        super().__init__()
        self.edges = _two_layers(width, _HIDDEN, 1)
        self.nodes = _two_layers(2 * width, width, num_known)

    def forward(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Return node logits and edge logits."""
        distances = (features[:, None] - features).abs()  # (N, N, D)
        edges = self.edges(distances.flatten(0, 1)).view(len(features), -1)
        weights = edges.sigmoid() * (1 - torch.eye(len(features)))  # an image has itself anyway
        neighbours = F.normalize(weights, p=1, dim=1) @ features
        return self.nodes(torch.cat([features, neighbours], dim=1)), edges


def fit(source: Labelled, target: Tensor, config: TrainConfig, generator: Generator) -> Prediction:
    """Train and label in turn; reject what a round has called unknown."""
    num_known = num_classes(source)
    head = new_head(target, config)
    graph = Graph(head.width, num_known)
    domain = _two_layers(head.width, head.width, 1)
    of_source = source_batches(source, config, generator)
    of_target = target_batches(target, config, generator)
    labels = torch.full((len(target),), NOT_YET)

    def loss() -> Tensor:
        of_images, classes = next(of_source)
        rows = next(of_target)
        features = head(torch.cat([of_images, target[rows]]))
        logits, edges = graph(features)
        together = torch.cat([classes, labels[rows]])
        known = together >= 0
        kept = together != UNKNOWN
        is_source = torch.arange(len(together)) < len(classes)
        of_domain = domain(reverse_gradient(features[kept]))[:, 0]
        return (
            edge_loss(edges, together)
            + _NODES * focal(logits[known], together[known])
            + _DOMAINS * F.binary_cross_entropy_with_logits(of_domain, is_source[kept].float())
        )

    steps = total_steps(config, num_known, len(target))
    later = (steps - config.pretrain_length(num_known)) // (_ROUNDS - 1)
    first = steps - (_ROUNDS - 1) * later
    for step in range(1, _ROUNDS + 1):
        minimise([head, graph, domain], loss, first if step == 1 else later, config)
        probs, adapted = _infer(head, graph, source, target, config, generator)
        label_more(labels, probs, step / _ROUNDS)
    novelty_score = (labels == UNKNOWN).float() + 1 - probs.max(dim=1).values
    return Prediction(labels, novelty_score, adapted)


def edge_loss(edges: Tensor, labels: Tensor) -> Tensor:
    """Return how far edges (N, N) between labelled images are from `of one class`, in nats."""
    labelled = labels != NOT_YET
    same = (labels[:, None] == labels).float()
    both = labelled[:, None] & labelled
    return F.binary_cross_entropy_with_logits(edges[both], same[both])


def focal(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the cross-entropy of which sure images count less, the mean over rows.

    Source: Lin et al. 2017, https://arxiv.org/abs/1708.02002
    """
    log_probs = logits.log_softmax(dim=1).gather(1, labels[:, None])
    return -((1 - log_probs.exp()) ** _FOCUS * log_probs).mean()


def label_more(labels: Tensor, probs: Tensor, share: float) -> None:
    """Label, in place, until that share of the target has a label; known ones get their new class.

    Args:
        labels: (N,), classes, UNKNOWN or not yet.
        probs: (N, K).
        share: Share of all N images.
    """
    sureness, classes = probs.max(dim=1)
    labels[labels >= 0] = classes[labels >= 0]
    left = (labels == NOT_YET).nonzero()[:, 0]
    wanted = round(share * len(labels)) - (len(labels) - len(left))
    order = left[sureness[left].argsort(descending=True)]
    known = round(wanted * _KNOWN_SHARE)
    labels[order[:known]] = classes[order[:known]]
    labels[order[len(order) - (wanted - known) :]] = UNKNOWN


@torch.no_grad()
def _infer(
    head: FeatureHead,
    graph: Graph,
    source: Labelled,
    target: Tensor,
    config: TrainConfig,
    generator: Generator,
) -> tuple[Tensor, Tensor]:
    """Return probabilities (N, K) and features (N, D), each batch beside one of the source."""
    head.eval()
    graph.eval()
    batches = source_batches(source, config, generator)
    adapted = head(target)
    parts = []
    for rows in adapted.split(config.batch_size):
        logits, _ = graph(torch.cat([rows, head(next(batches)[0])]))
        parts.append(logits[: len(rows)].softmax(dim=1))
    return torch.cat(parts), adapted


def _two_layers(width: int, hidden: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(width, hidden), nn.BatchNorm1d(hidden), nn.LeakyReLU(), nn.Linear(hidden, outputs)
    )
