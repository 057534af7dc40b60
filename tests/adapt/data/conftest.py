from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from scda.models.networks.backbones import Backbone, load_backbone
from scda.models.networks.conv4 import Conv4


def weights(folder: Path, seed: int) -> Path:
    """Write the weights of a small backbone, and return their file."""
    torch.manual_seed(seed)
    path = folder / f"conv4-{seed}.safetensors"
    save_file(Conv4().state_dict(), path)
    return path


@pytest.fixture(scope="module")
def backbone(tmp_path_factory: pytest.TempPathFactory) -> Backbone:
    return load_backbone("conv4", weights=weights(tmp_path_factory.mktemp("weights"), 0))
