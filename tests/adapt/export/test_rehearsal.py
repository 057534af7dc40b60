import numpy as np
import torch

from scda.adapt.config import TrainConfig
from scda.adapt.data.dataset import Labelled
from scda.adapt.export.rehearsal import LEAST, rehearse


def test_held_out_images_are_a_fifth_of_the_target() -> None:
    rng = np.random.default_rng(0)
    centres = 6 * np.eye(4, 8)
    points = [c + rng.normal(size=(55, 8)) for c in centres]
    source = Labelled(
        torch.tensor(np.vstack(points[:2]), dtype=torch.float32),
        torch.arange(2).repeat_interleave(55),
    )
    target = torch.tensor(np.vstack(points), dtype=torch.float32)
    config = TrainConfig(pretrain_steps=4, rounds=1, round_steps=4, k=2, novel="yes")
    before = torch.get_rng_state()
    found = rehearse(source, target, config)
    assert torch.equal(torch.get_rng_state(), before)
    assert found is not None
    assert found.images == 44 == sum(found.distance.counts)
    assert 0 <= found.outliers <= 44
    assert rehearse(source, target[: LEAST - 1], config) is None
