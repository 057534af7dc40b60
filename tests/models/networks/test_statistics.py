from dataclasses import replace

import torch
from torch import nn

from scda.models.networks.backbones import Backbone
from scda.models.networks.conv4 import Conv4
from scda.models.networks.network import PixelBackbone
from scda.models.networks.statistics import (
    batch_features,
    batch_statistics,
    gathering,
    has_statistics,
    with_statistics,
)
from scda.models.preprocess import Preprocessing

PREPROCESSING = Preprocessing(resize_px=32, crop_px=32, mean=(127.0,) * 3, std=(128.0,) * 3)


def conv4() -> Backbone:
    torch.manual_seed(0)
    network = Conv4().eval()
    return Backbone("conv4", network, network.num_features, PREPROCESSING, network.last_stage)


def dark(count: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randint(0, 40, (count, 32, 32, 3), generator=generator, dtype=torch.uint8)


def test_the_layers_normalise_the_images_that_the_statistics_are_of() -> None:
    backbone, images = conv4(), dark(64)
    adapted = with_statistics(backbone, batch_statistics(backbone, [images]))
    seen: list[torch.Tensor] = []
    for network in (backbone.network, adapted.network):
        (first, *_) = [m for m in network.modules() if isinstance(m, nn.BatchNorm2d)]
        first.register_forward_hook(lambda module, given, result: seen.append(result))
        with torch.no_grad():
            PixelBackbone(replace(backbone, network=network)).eval()(images)
    before, after = (result.mean(dim=(0, 2, 3)).abs().max().item() for result in seen)
    assert before > 0.1
    assert after < 1e-4


def test_weights_stay_and_the_given_backbone_is_left_alone() -> None:
    backbone = conv4()
    before = {name: tensor.clone() for name, tensor in backbone.network.state_dict().items()}
    adapted = with_statistics(backbone, batch_statistics(backbone, [dark(8), dark(8)]))
    for name, tensor in backbone.network.state_dict().items():
        assert torch.equal(tensor, before[name])
    changed = {
        name.rpartition(".")[2]
        for name, tensor in adapted.network.state_dict().items()
        if not torch.equal(tensor, before[name])
    }
    assert changed == {"running_mean", "running_var"}
    assert adapted.id != backbone.id
    assert adapted.width == backbone.width


def test_statistics_are_the_mean_over_batches() -> None:
    backbone, first, second = conv4(), dark(8), dark(24)[8:]
    both = batch_statistics(backbone, [first, second])
    each = [batch_statistics(backbone, [images]) for images in (first, second)]
    name = "layers.2.running_mean"
    assert torch.allclose(both[name], (each[0][name] + each[1][name]) / 2)


def test_a_backbone_may_have_none() -> None:
    assert has_statistics(conv4())
    assert not has_statistics(replace(conv4(), network=nn.Sequential(nn.Linear(2, 2))))


def test_features_by_batch_are_nearly_those_of_the_domain() -> None:
    backbone, images = conv4(), dark(64)
    adapted = with_statistics(backbone, batch_statistics(backbone, [images]))
    found = batch_features(backbone, [images[:32], images[32:]])
    with torch.no_grad():
        before, after = (PixelBackbone(of).eval()(images) for of in (backbone, adapted))
    assert found.shape == (64, backbone.width)
    assert (found - after).norm() < 0.2 * (found - before).norm()


def test_layers_gather_the_statistics_of_a_block_alone() -> None:
    layer = nn.BatchNorm1d(2, momentum=0.3)
    layer.eval()
    with gathering([layer]):
        layer(torch.tensor([[1.0, 2.0], [3.0, 2.0]]))
    layer(torch.tensor([[100.0, 100.0], [300.0, 100.0]]))
    assert layer.running_mean is not None
    assert layer.running_mean.tolist() == [2.0, 2.0]
    assert layer.momentum == 0.3
