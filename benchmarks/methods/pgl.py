"""PGL: a graph of source and target images; each round labels a part of the target.

Luo, Wang, Huang, Baktashmotlagh 2020, "Progressive Graph Learning for Open-Set Domain Adaptation",
https://arxiv.org/abs/2006.12087. In a batch of both domains an edge network gives the similarity of
every pair from the distance of their features, and a node network classifies an image by its own
features and the mean of its neighbours. The losses are a focal loss on nodes (weight mu), a
cross-entropy on edges between labelled images, and an adversary between domains (weight gamma) that
ignores images labelled unknown. Each of 1 / alpha rounds labels a share alpha of the target
permanently: of these images, a share beta, those with the highest confidence, gets its class, and
those with the lowest confidence become unknown. After the last round, all images have a label.

**beta is the share of known images in the target, which no user knows.** The authors give 0.1 to
0.9, and none for Office-31; here it is 0.6 for every target, their README's value for VisDA-18. mu,
gamma and alpha are those of their program. The rest is simpler: networks are kept from round to
round instead of trained anew, pseudo-labelled images come in the batches of the target instead of
the source, edges are learnt before they are normalised, and scda's SGD replaces Adam. The first
round has the steps of scda's pre-training; the other rounds divide the remaining steps evenly, and
the remainder goes to the first.
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

NOT_YET = -2  # label of a target image that is not labelled yet
_ROUNDS = 10  # 1 / alpha
_KNOWN_SHARE = 0.6  # beta
_NODES, _DOMAINS = 0.3, 0.4  # mu and gamma
_FOCUS = 2  # exponent of the focal loss
_HIDDEN = 64  # hidden units of the edge network


class Graph(nn.Module):
    """One layer of edges and nodes: features (N, D) → logits (N, K), edge logits (N, N)."""

    def __init__(self, width: int, num_known: int) -> None:
        """Create both networks for features of dimension `width`."""
        super().__init__()
        self.edges = _two_layers(width, _HIDDEN, 1)
        self.nodes = _two_layers(2 * width, width, num_known)

    def forward(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Return node logits and edge logits."""
        distances = (features[:, None] - features).abs()  # (N, N, D)
        edges = self.edges(distances.flatten(0, 1)).view(len(features), -1)
        weights = edges.sigmoid() * (1 - torch.eye(len(features)))  # without self-loops
        neighbours = F.normalize(weights, p=1, dim=1) @ features
        return self.nodes(torch.cat([features, neighbours], dim=1)), edges


def fit(source: Labelled, target: Tensor, config: TrainConfig, generator: Generator) -> Prediction:
    """Alternate between training and labelling; reject images labelled unknown."""
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
    """Return the cross-entropy, in nats, of the edges (N, N) between labelled images."""
    labelled = labels != NOT_YET
    same = (labels[:, None] == labels).float()
    both = labelled[:, None] & labelled
    return F.binary_cross_entropy_with_logits(edges[both], same[both])


def focal(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the focal loss, in which confident images count less, averaged over rows.

    Source: Lin et al. 2017, https://arxiv.org/abs/1708.02002
    """
    log_probs = logits.log_softmax(dim=1).gather(1, labels[:, None])
    return -((1 - log_probs.exp()) ** _FOCUS * log_probs).mean()


def label_more(labels: Tensor, probs: Tensor, share: float) -> None:
    """Label more images, in place; images labelled as known are classified again.

    Args:
        labels: Classes, UNKNOWN or NOT_YET, (N,).
        probs: Probabilities, (N, K).
        share: Share of all images that have a label afterwards, 0 to 1.
    """
    sureness, classes = probs.max(dim=1)
    labels[labels >= 0] = classes[labels >= 0]
    left = (labels == NOT_YET).nonzero()[:, 0]
    count = round(share * len(labels)) - (len(labels) - len(left))
    order = left[sureness[left].argsort(descending=True)]
    known = round(count * _KNOWN_SHARE)
    labels[order[:known]] = classes[order[:known]]
    labels[order[len(order) - (count - known) :]] = UNKNOWN


@torch.no_grad()
def _infer(
    head: FeatureHead,
    graph: Graph,
    source: Labelled,
    target: Tensor,
    config: TrainConfig,
    generator: Generator,
) -> tuple[Tensor, Tensor]:
    """Return probabilities (N, K) and features (N, D); each batch is joined with a source batch."""
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
