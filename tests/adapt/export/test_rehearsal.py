from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

import numpy as np
import pytest
import torch

from scda.adapt.config import TrainConfig
from scda.adapt.data.dataset import Labelled
from scda.adapt.data.image_files import Images
from scda.adapt.data.shared import shared_images
from scda.adapt.export import rehearsal
from scda.adapt.export.final_model import final_model
from scda.adapt.export.rehearsal import LEAST, agreement, rehearse, rehearsing
from scda.adapt.runs.tables import HeldOutRow, read_held_out, write_held_out
from scda.adapt.runtime.threads import one_thread
from scda.adapt.training.algorithm import adapt
from scda.models.errors import GateError


def test_held_out_images_are_a_fifth_of_the_target_and_a_model_of_all_agrees_on_them(
    tmp_path: Path,
) -> None:
    rng = np.random.default_rng(0)
    centres = 6 * np.eye(4, 8)
    points = [c + rng.normal(size=(55, 8)) for c in centres]
    source = Labelled(
        torch.tensor(np.vstack(points[:2]), dtype=torch.float32),
        torch.arange(2).repeat_interleave(55),
    )
    target = torch.tensor(np.vstack(points), dtype=torch.float32)
    config = TrainConfig(pretrain_steps=40, rounds=1, round_steps=40, k=2, novel="yes")
    before = torch.get_rng_state()
    found = rehearse(source, target, config)
    assert torch.equal(torch.get_rng_state(), before)
    assert found is not None
    figures = found.figures
    assert figures.images == len(found.held) == 44 == sum(figures.distance.counts)
    assert 0 <= figures.outliers <= 44
    assert found.predicted.shape == (220,)
    assert rehearse(source, target[: LEAST - 1], config) is None

    final = final_model(adapt(source, target, config), ["a", "b"])
    agreed = agreement(final, target, found)
    assert np.array_equal(agreed.rows, found.held)
    assert agreed.agrees.mean() > 0.9  # the discovered classes have other numbers in each
    calibrated = final.probabilities[agreed.rows].max(axis=1)
    assert np.array_equal(agreed.confidence, calibrated)
    assert (agreed.uncalibrated >= agreed.confidence - 1e-6).all()  # no temperature is below 1

    images = Images(tmp_path, [tmp_path / f"{row}.png" for row in range(220)])
    write_held_out(tmp_path / "held_out.csv", final, images, agreed)
    first, *rest = read_held_out(tmp_path / "held_out.csv")
    assert len(rest) == 43
    assert first == HeldOutRow(
        path=f"{found.held[0]}.png",
        class_id=final.class_ids[final.predicted[found.held[0]]],
        confidence=round(float(agreed.confidence[0]), 6),
        uncalibrated=round(float(agreed.uncalibrated[0]), 6),
        agrees=bool(agreed.agrees[0]),
    )


@contextmanager
def killed(*_: object) -> Iterator[Callable[[], NoReturn]]:
    """In place of `beside`: a process that ended without an answer."""

    def result() -> NoReturn:
        raise GateError("a second process ended with exit code -9")

    yield result


@pytest.mark.parametrize("is_killed", [False, True])
def test_a_process_of_its_own_trains_the_same_second_model_and_none_is_needed(
    monkeypatch: pytest.MonkeyPatch, is_killed: bool
) -> None:
    if is_killed:
        monkeypatch.setattr(rehearsal, "beside", killed)
    rng = np.random.default_rng(0)
    points = np.vstack([6 * row + rng.normal(size=(55, 8)) for row in np.eye(4, 8)])
    target = torch.tensor(points, dtype=torch.float32)
    source = Labelled(target[:110] + 0.1, torch.arange(2).repeat_interleave(55))
    config = TrainConfig(pretrain_steps=4, rounds=1, round_steps=4, novel="no", space="backbone")
    with rehearsing(source, target, config, apart=True) as result:
        apart = result()
    with one_thread():
        here = rehearse(source, target, config)
    assert apart is not None
    assert here is not None
    assert apart.figures == here.figures
    assert np.array_equal(apart.predicted, here.predicted)


def test_no_labelled_image_is_held_out() -> None:
    rng = np.random.default_rng(0)
    points = np.vstack([6 * row + rng.normal(size=(55, 8)) for row in np.eye(4, 8)])
    target = torch.tensor(points, dtype=torch.float32)
    source = Labelled(target[:110] + 0.1, torch.arange(2).repeat_interleave(55))
    config = TrainConfig(pretrain_steps=40, rounds=1, round_steps=40)
    plain = rehearse(source, target, config)
    assert plain is not None
    labelled = np.sort(plain.held[:5])
    digests = [f"s{row}" for row in range(105)] + [f"t{row}" for row in labelled]
    labels = source.labels.numpy()
    shared = shared_images(digests, labels, [f"t{row}" for row in range(220)])
    found = rehearse(source, target, config, shared=shared)
    assert found is not None
    assert found.held.tolist() == plain.held[5:].tolist()
