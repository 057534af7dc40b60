import io
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from benchmarks.open_set.projection import flat, measure_projection, projection_png, summary
from benchmarks.open_set.protocols import Lists
from benchmarks.open_set.runs import Inputs, Run
from scda.adapt.config import TrainConfig
from scda.adapt.data.dataset import Labelled

QUICK = TrainConfig(head_widths=(8,), pretrain_steps=3, round_steps=3, rounds=1, novel="yes")


def test_classes_that_are_apart_stay_apart() -> None:
    truth = np.repeat([0, 1, 2], 20)
    rng = np.random.default_rng(0)
    features = (5 * np.eye(3)[truth] + rng.normal(0, 0.3, (60, 3))).astype(np.float32)
    points = flat(features, 0)
    centres = np.stack([points[truth == label].mean(axis=0) for label in range(3)])
    own = np.linalg.norm(points - centres[truth], axis=1).mean()
    gaps = np.linalg.norm(centres[:, None] - centres, axis=2)[~np.eye(3, dtype=bool)]
    assert gaps.min() > 3 * own


def test_a_figure_is_drawn_from_the_record() -> None:
    rng = np.random.default_rng(0)
    labels, truth = np.repeat([0, 1], 8), np.repeat([0, 1, 2, 3], 8)
    source, target = (
        torch.from_numpy((4 * np.eye(4)[of] + rng.normal(0, 0.3, (len(of), 4))).astype(np.float32))
        for of in (labels, truth)
    )
    inputs = Inputs(Labelled(source, torch.from_numpy(labels)), target)
    lists = Lists((), (), tuple(Path(str(n)) for n in range(32)), tuple(truth.tolist()), 2)
    record = measure_projection(Run({"task": "A-D", "seed": 0}, lists, QUICK), inputs)
    assert np.shape(record["before"]) == np.shape(record["after"]) == (32, 2)
    assert record["before"] != record["after"]
    assert "A-D, seed 0: 32 images" in summary([record])
    image = Image.open(io.BytesIO(projection_png([record])))
    colours = {colour for _, colour in image.convert("RGB").getcolors(1 << 20) or []}
    assert {(31, 119, 180), (174, 199, 232)} & colours  # the two implicit classes, of tab20
    assert image.width > image.height


def test_too_few_images_for_thirty_neighbours_are_no_trouble() -> None:
    assert flat(np.eye(5, dtype=np.float32), 0).shape == (5, 2)
    with pytest.raises(ValueError, match="perplexity"):
        flat(np.eye(1, 5, dtype=np.float32), 0)
