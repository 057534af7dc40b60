import numpy as np
import pytest
import torch
from torch import nn

from scda.adapt.config import TrainConfig
from scda.adapt.data.dataset import Labelled
from scda.adapt.discovery import large
from scda.adapt.discovery.novelty.pretrained_classes import (
    pretrained_views,
    tells_apart,
    with_pretrained_classes,
)
from scda.adapt.training.domains import Domains
from scda.models.index import normalised

KNOWN, EACH, WIDTH, SEEN = 4, 20, 24, 6  # SEEN classes of the pre-training, one axis each
LABELS = np.repeat(np.arange(KNOWN), EACH)
TRUTH = np.repeat(np.arange(KNOWN + 1), EACH)  # the target has one class more


def domain(labels: np.ndarray, seed: int) -> np.ndarray:
    """Classes differ along few axes, images of one class along many: pose, light, background."""
    rng = np.random.default_rng(seed)
    points = rng.normal(0, 2.5, (len(labels), WIDTH))
    points[:, :SEEN] = rng.normal(0, 0.5, (len(labels), SEEN))
    points[np.arange(len(labels)), labels] += 4
    return points.astype(np.float32)


SOURCE, TARGET = domain(LABELS, 1), domain(TRUTH, 2)
POINTS = normalised(SOURCE), normalised(TARGET)


def classifier(axes: slice) -> nn.Linear:
    """A classifier that sees these axes of the features alone, each as a class."""
    linear = nn.Linear(WIDTH, len(range(*axes.indices(WIDTH))))
    nn.init.zeros_(linear.bias)
    linear.weight.data = torch.eye(WIDTH)[axes]
    return linear.requires_grad_(False)


SEES, SEES_NOT = classifier(slice(0, SEEN)), classifier(slice(SEEN, WIDTH))


def test_the_view_finds_the_class_where_features_do_not() -> None:
    views = pretrained_views((SOURCE, TARGET), SEES)
    for found, view, points in zip(("source", "target"), views, POINTS, strict=True):
        labels = LABELS if found == "source" else TRUTH
        np.testing.assert_allclose(np.linalg.norm(view, axis=1), 1, atol=1e-5)
        nearest = [
            (rows @ rows.T - 2 * np.eye(len(rows))).argmax(axis=1) for rows in (view, points)
        ]
        in_view, before = ((labels[near] == labels).mean() for near in nearest)
        assert in_view > 0.95 > 0.9 > before


def test_both_views_count_the_same() -> None:
    joined = with_pretrained_classes(POINTS, (SOURCE, TARGET), LABELS, SEES)
    views = pretrained_views((SOURCE, TARGET), SEES)
    for both, points, view in zip(joined, POINTS, views, strict=True):
        np.testing.assert_allclose(
            both @ both.T, (points @ points.T + view @ view.T) / 2, atol=1e-5
        )


def test_a_classifier_that_never_saw_such_classes_is_left_aside() -> None:
    views = pretrained_views((SOURCE, TARGET), SEES_NOT)
    assert not tells_apart(views[0], POINTS[0], LABELS)
    assert with_pretrained_classes(POINTS, (SOURCE, TARGET), LABELS, SEES_NOT) is POINTS


def test_images_in_blocks_give_the_same_view(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = pretrained_views((SOURCE, TARGET), SEES)
    monkeypatch.setattr(large, "LARGE", 7)
    for blocks, at_once in zip(pretrained_views((SOURCE, TARGET), SEES), whole, strict=True):
        np.testing.assert_allclose(blocks, at_once, atol=1e-5)


@pytest.mark.parametrize("space", ["auto", "whitened"])
def test_only_auto_looks_at_the_classes_of_the_pre_training(space: str) -> None:
    source = Labelled(torch.from_numpy(SOURCE), torch.from_numpy(LABELS))
    domains = Domains(source, torch.from_numpy(TARGET), TrainConfig(space=space), classifier=SEES)
    assert (domains.points is domains.whitened) == (space == "whitened")
    # F's inputs are the whitened features in both cases.
    assert domains.target.shape[1] == domains.whitened[1].shape[1]
