"""Source and target as F and the decision about new classes see them."""

from dataclasses import replace
from functools import cached_property

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor, nn

from scda.adapt.config import TrainConfig
from scda.adapt.data.dataset import Labelled
from scda.adapt.data.shared import Shared
from scda.adapt.discovery.grain import Grain, grain_of
from scda.adapt.discovery.kmeans import Points
from scda.adapt.discovery.neighbours import NEIGHBOURS, nearest_others
from scda.adapt.discovery.novelty.comparison import Comparison
from scda.adapt.discovery.novelty.pretrained_classes import with_pretrained_classes
from scda.adapt.discovery.novelty.whitening import Whitening, fit_whitening
from scda.adapt.discovery.propagation import neighbour_graph
from scda.adapt.training.first_classes import first_classes
from scda.adapt.training.inputs import FeatureInputs, Inputs
from scda.models.index import Ids
from scda.models.networks.network import Whitened

_LENGTH = 15.0  # of F's inputs if they are whitened


class Domains:
    """The labelled source and the unlabelled target of a run.

    Attributes:
        source: F's inputs in pre-training, with labels 0 to K' - 1.
        labels: Labels of the whole source, 0 to K - 1, (N,).
        target: F's inputs after the last stage, (M, D).
        backbone_target: Features of the backbone of the last stage, (M, D_backbone).
        inputs: What the rounds train on.
        num_known: Number of known classes, K.
        num_first: Number of classes that pre-training takes for known, K'.
        anchors: Classes that are to remain classes, (M,): the class of each image, or -1.
        shared: The images that both domains hold; None for none.
        first: What pre-training and the first discovery know of them; None without shared images.
    """

    def __init__(
        self,
        source: Labelled,
        target: Tensor,
        config: TrainConfig,
        inputs: Inputs | None = None,
        anchors: Ids | None = None,
        classifier: nn.Linear | None = None,
        shared: Shared | None = None,
    ) -> None:
        """Start with the features of the frozen backbone.

        Args:
            source: Features (N, D_backbone) with labels 0 to K - 1.
            target: Features, (M, D_backbone).
            config: Configuration of the run.
            inputs: What the rounds train on; None takes the features.
            anchors: Classes that are to remain classes; None for none.
            classifier: The classifier of the backbone's pre-training; None if it is not known.
            shared: The images that both domains hold: labelled images of the target, whose features
                and points in the source are those that they have in the target. None for none.
        """
        self.anchors, self.shared = anchors, shared
        self.labels, self.num_known = source.labels, int(source.labels.max()) + 1
        self.first = first_classes(source.labels.numpy(), shared, config) if shared else None
        own = self.first.of_source(source) if self.first else source
        self._whole = torch.from_numpy(self.with_shared(own.features.numpy(), target.numpy()))
        if self.first:
            own = replace(own, features=self._whole[self.own_rows])
        self._frozen, self._whitens = (own, target), config.whitens
        self._classifier = classifier if config.space == "auto" else None
        self.source, self.target, self.backbone_target = own, target, target
        self.num_first = int(own.labels.max()) + 1
        if config.whitens:
            points, others = (torch.from_numpy(_LENGTH * rows) for rows in self.whitened)
            self.source, self.target = replace(own, features=points), others
        self.inputs: Inputs = inputs or FeatureInputs(
            torch.from_numpy(self.with_shared(self.source.features.numpy(), self.target.numpy())),
            self.target,
        )
        self._graph: csr_array | None = None
        self._near: Ids | None = None

    @cached_property
    def whitening(self) -> Whitening:
        """The whitening of the frozen backbone's features."""
        source, target = self._frozen
        return fit_whitening(source.features.numpy(), source.labels.numpy(), target.numpy())

    @cached_property
    def whitened(self) -> tuple[Points, Points]:
        """The whitened points of pre-training's source, (N', D), and the target, (M, D)."""
        source, target = self._frozen
        points = self.whitening.source(source.features.numpy())
        others = self.whitening.target(target.numpy())
        return self._placed(points, others), others

    @cached_property
    def points(self) -> tuple[Points, Points]:
        """The points on which the decision about new classes is made, (N', D) and (M, D).

        They are of length 1: whitened, with the classes of the pre-training where those help.
        """
        if self._classifier is None:
            return self.whitened
        source, target = self._frozen
        features = source.features.numpy(), target.numpy()
        points, others = with_pretrained_classes(
            self.whitened, features, source.labels.numpy(), self._classifier
        )
        return self._placed(points, others), others

    @cached_property
    def compared(self) -> Comparison:
        """The comparison of both domains on which the decision is made."""
        source, target = self.points
        return Comparison(source, self._frozen[0].labels.numpy(), target)

    def with_shared(self, source: Points, target: Points) -> Points:
        """Return the rows of the whole source, (N, D): shared images have those of the target.

        Args:
            source: Rows of the source of pre-training, (N', D).
            target: Rows of the target, (M, D).
        """
        if self.shared is None or self.first is None:
            return source
        whole = np.empty((len(self.labels), source.shape[1]), np.float32)
        whole[self.first.rows] = source
        whole[self.shared.rows] = target[self.shared.twins]
        return whole

    def _placed(self, source: Points, target: Points) -> Points:
        """Return the source of pre-training with shared images where they are in the target."""
        return self.with_shared(source, target)[self.first.rows] if self.first else source

    @property
    def own_rows(self) -> Tensor:
        """Rows of the whole source that the rounds train on as source, (N',)."""
        if self.first is None:
            return torch.arange(len(self.labels))
        return torch.from_numpy(self.first.rows)

    @cached_property
    def grain(self) -> Grain | None:
        """How finely the target may be divided; None where hardly any source classes touch."""
        if not self._whitens:
            return None
        return grain_of(self.points[0], self._frozen[0].labels.numpy())

    @property
    def is_frozen(self) -> bool:
        """Whether the target's features are still those of the frozen backbone."""
        return self.backbone_target is self._frozen[1]

    @property
    def graph(self) -> csr_array:
        """The neighbour graph of the target, computed once per backbone."""
        if self._whitens:
            return self.compared.graph
        if self._graph is None:
            self._graph = neighbour_graph(self.target.numpy())
        return self._graph

    @property
    def near(self) -> Ids:
        """The nearest neighbours among F's inputs of the target, (M, 10), once per backbone."""
        if self._near is None:
            self._near = nearest_others(self.target.numpy(), NEIGHBOURS)
        return self._near

    def update(self, backbone: nn.Module, *, refresh_batchnorm: bool) -> None:
        """Recompute the target's features with the backbone that a round trained.

        Args:
            backbone: Backbone of the round.
            refresh_batchnorm: Whether its batch statistics become those of the target first.
        """
        if refresh_batchnorm:
            self.inputs.refresh_batchnorm(backbone)
        target = self.inputs.target_features(backbone)
        if target is not self.target:
            self.target, self.backbone_target = target, target
            self._graph = self._near = None

    def source_features(self, backbone: nn.Module) -> Tensor:
        """Return the source's features by the backbone of the last stage, (N, D_backbone)."""
        return self._whole if self._whitens else self.inputs.source_features(backbone)

    def on_backbone(self, head: nn.Module) -> nn.Module:
        """Return the head with what lies between backbone and F's inputs in front of it."""
        if not self._whitens:
            return head
        mean, projection = self.whitening.target_mean, self.whitening.projection
        whitened = Whitened(torch.from_numpy(mean), torch.from_numpy(projection), _LENGTH)
        return nn.Sequential(whitened, *head.children())
