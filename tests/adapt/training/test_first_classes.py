from typing import Any

import numpy as np
import pytest
import torch

from scda.adapt.config import TrainConfig
from scda.adapt.data.shared import Shared, shared_images
from scda.adapt.training.first_classes import first_classes

# Class 1 has one image, which is in the target. Class 2 has one there, and one elsewhere.
LABELS = np.array([0, 0, 1, 2, 2])


def shared(source: str = "abcde", target: str = "xcdy") -> Shared:
    found = shared_images(source, LABELS, target)
    assert found is not None
    return found


def test_a_class_of_target_images_alone_is_still_to_be_discovered() -> None:
    first = first_classes(LABELS, shared(), TrainConfig())
    assert first.classes.tolist() == [0, 2]
    assert first.rows.tolist() == [0, 1, 3, 4]
    assert first.labels.tolist() == [0, 0, 1, 1]
    assert first.given.tolist() == [-1, 2, 1, -1]
    assert first.is_new.tolist() == [False, True, False, False]


def test_outputs_of_pretraining_stand_for_classes() -> None:
    first = first_classes(LABELS, shared(), TrainConfig())
    assert first.predicted(torch.tensor([0, 1, 2]), num_known=3).tolist() == [0, 2, 3]


@pytest.mark.parametrize("options", [{"novel": "no"}, {"k": 2}, {"rounds": 0}])
def test_all_classes_are_known_where_none_is_searched_for(options: dict[str, Any]) -> None:
    first = first_classes(LABELS, shared(), TrainConfig(**options))
    assert first.classes.tolist() == [0, 1, 2]
    assert first.rows.tolist() == [0, 1, 2, 3, 4]
    assert first.given.tolist() == [-1, 1, 2, -1]
    assert not first.is_new.any()


def test_all_classes_are_known_where_fewer_than_two_have_other_images() -> None:
    first = first_classes(LABELS, shared(target="cde"), TrainConfig())
    assert first.classes.tolist() == [0, 1, 2]
    assert first.rows.tolist() == [0, 1, 2, 3, 4]
