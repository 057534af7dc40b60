"""Source and target as the backbone of the last stage sees them."""

from scipy.sparse import csr_array
from torch import Tensor, nn

from scda.adapt.data.dataset import Labelled
from scda.adapt.discovery.propagation import neighbour_graph
from scda.adapt.training.inputs import FeatureInputs, Inputs


class Domains:
    """The labelled source and the unlabelled target of a run.

    Attributes:
        source: Features of the frozen backbone, which pre-training uses.
        target: Features of the backbone of the last stage, (M, D_backbone).
        inputs: What the rounds train on.
        num_known: Number of known classes, K.
    """

    def __init__(self, source: Labelled, target: Tensor, inputs: Inputs | None = None) -> None:
        """Start with the features of the frozen backbone.

        Args:
            source: Features (N, D_backbone) with labels 0 to K - 1.
            target: Features, (M, D_backbone).
            inputs: What the rounds train on; None takes the features.
        """
        self.source, self.target = source, target
        self.inputs: Inputs = inputs or FeatureInputs(source.features, target)
        self.num_known = int(source.labels.max()) + 1
        self._graph: csr_array | None = None

    @property
    def graph(self) -> csr_array:
        """The neighbourhood graph of the target, computed once per backbone."""
        if self._graph is None:
            self._graph = neighbour_graph(self.target.numpy())
        return self._graph

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
            self.target, self._graph = target, None
