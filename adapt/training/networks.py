"""F and C in PyTorch: training passes in any precision, inference, and batch statistics."""

import math
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import update_bn

from scda.adapt.runtime.device import DTYPES

_BATCHNORM_ROWS = 4096


@dataclass
class Networks:
    """F and C; the backbone is the identity if F's inputs are features, and C is new every round.

    Outputs are float32 in every precision, because losses and entropies need it.
    """

    head: nn.Module  # (N, D_backbone) → (N, D)
    classifier: nn.Module  # (N, D) → (N, C)
    backbone: nn.Module = field(default_factory=nn.Identity)  # a batch of inputs → (N, D_backbone)
    precision: str = "fp32"  # precision of passes in training
    others: nn.ModuleList = field(default_factory=nn.ModuleList)  # further pairs of F and C

    @property
    def device(self) -> torch.device:
        """The device of the networks, to which inputs are moved."""
        return next(self.head.parameters()).device

    @property
    def modules(self) -> nn.ModuleList:
        """All modules, to train or move them together."""
        return nn.ModuleList([self.backbone, self.head, self.classifier, self.others])

    @property
    def members(self) -> list["Networks"]:
        """The ensemble: these networks alone, and each further pair on the same backbone."""
        own = nn.Sequential(self.head, self.classifier)
        return [
            replace(self, head=head, classifier=classifier, others=nn.ModuleList())
            for head, classifier in (pair.children() for pair in (own, *self.others))
        ]

    def features(self, inputs: Tensor) -> Tensor:
        """Return F(x), (N, D)."""
        with self._autocast():
            features: Tensor = self.head(self.backbone(inputs.to(self.device, non_blocking=True)))
        return features.float()

    def classify(self, features: Tensor) -> Tensor:
        """Return C's logits of F's features, (N, C)."""
        with self._autocast():
            logits: Tensor = self.classifier(features)
        return logits.float()

    def logits(self, inputs: Tensor) -> Tensor:
        """Return C(F(x)), (N, C)."""
        return self.classify(self.features(inputs))

    def _autocast(self) -> torch.autocast:
        enabled = self.precision != "fp32"
        return torch.autocast(self.device.type, DTYPES[self.precision], enabled=enabled)


@torch.no_grad()
def infer(networks: Networks, features: Tensor) -> tuple[Tensor, Tensor]:
    """Return logits (N, C) and F's features (N, D) of backbone features, both on the CPU.

    Inference uses the stored batch statistics and float32, as the exported model does.
    """
    networks.head.eval()
    networks.classifier.eval()
    device = networks.device
    parts = [networks.head(rows.to(device)) for rows in features.split(_BATCHNORM_ROWS)]
    adapted = torch.cat(parts)
    return networks.classifier(adapted).cpu(), adapted.cpu()


def infer_together(networks: Networks, features: Tensor) -> tuple[Tensor, Tensor]:
    """Return logits (N, C) of the ensemble and F's features (N, D), both on the CPU.

    The logits of several members are the mean of their log-probabilities; the features are those
    of the first one.
    """
    outputs = [infer(member, features) for member in networks.members]
    logits, adapted = outputs[0]
    if len(outputs) > 1:
        logits = torch.stack([of_member.log_softmax(dim=1) for of_member, _ in outputs]).mean(dim=0)
    return logits, adapted


def refresh_batchnorm(networks: Networks, target: Tensor) -> None:
    """Set the stored batch statistics of F to those of the whole target (choice 21).

    The statistics of a large target are the mean over parts of equal size, each a sample of it.
    """
    parts = math.ceil(len(target) / _BATCHNORM_ROWS)
    for member in networks.members:
        samples = (target[part::parts] for part in range(parts))
        update_bn(samples, member.head, device=networks.device)


@torch.no_grad()
def add_unknown_bias(networks: Networks, num_known: int, nats: float) -> None:
    """Add a constant to the logits of all outputs that are no known class.

    Args:
        networks: Networks whose C is changed in place.
        num_known: Number of known classes, K.
        nats: Number to add; more predicts more images unknown.
    """
    assert isinstance(networks.classifier, nn.Linear)
    networks.classifier.bias[num_known:] += nats
