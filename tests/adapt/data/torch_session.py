"""A session of PyTorch in place of ONNX Runtime's, whose export takes seconds."""

import numpy as np
import torch

from scda.adapt.data.features import BATCH
from scda.models.networks.backbones import Backbone
from scda.models.networks.network import PixelBackbone
from scda.models.preprocess import Pixels


class TorchSession:
    """Computes the features of full batches, and counts them."""

    at_once = 2

    def __init__(self, backbone: Backbone, *_: object) -> None:
        self.network, self.calls = PixelBackbone(backbone).eval(), 0

    def run(self, pixels: Pixels) -> "list[np.ndarray[tuple[int, ...], np.dtype[np.float32]]]":
        assert len(pixels) == BATCH  # always full
        self.calls += 1
        with torch.no_grad():
            return [self.network(torch.from_numpy(pixels)).numpy()]
