from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Generator, Tensor, nn

from scda.adapt import alternate, novelty
from scda.adapt.alternate import Adapted, Stage, adapt, pseudo_labelled
from scda.adapt.config import TrainConfig, resolve
from scda.adapt.discover import Candidates, Discovery, contingency, discover
from scda.adapt.metrics import Labels, acc_novel, open_set
from scda.adapt.train import Labelled, Networks, infer, refresh_batchnorm
from scda.models.errors import GateError

WIDTH, KNOWN, HIDDEN, EACH = 8, 3, 2, 30
SMALL: dict[str, Any] = {
    "head_widths": (32, 16),
    "lr": 0.01,
    "k_max": 6,
    "restarts": 2,
    "pretrain_steps": 60,
    "round_steps": 40,
    "iterations": 2,
    "batch_size": 16,
}


def config(preset: str = "robust", **fields: Any) -> TrainConfig:
    return resolve({"preset": preset, **SMALL, **fields})


def domain(classes: int, *, shift: float, seed: int) -> Labelled:
    """Return groups of images around corners; a domain is shifted against the other."""
    numbers = torch.arange(classes).repeat_interleave(EACH)
    noise = torch.randn(len(numbers), WIDTH, generator=Generator().manual_seed(seed))
    return Labelled(4 * torch.eye(WIDTH)[numbers] + 0.4 * noise + shift, numbers)


SOURCE = domain(KNOWN, shift=0.0, seed=1)
TARGET = domain(KNOWN + HIDDEN, shift=0.3, seed=2)
CLOSED = domain(KNOWN, shift=0.3, seed=3)


@dataclass
class Watched:
    adapted: Adapted
    stages: list[Stage]


def run(
    settings: TrainConfig, target: Tensor = TARGET.features, folder: Path | None = None
) -> Watched:
    stages: list[Stage] = []
    adapted = adapt(
        SOURCE,
        target,
        settings,
        checkpoints=folder,
        on_stage=lambda stage, networks: stages.append(stage),
    )
    return Watched(adapted, stages)


def predictions(adapted: Adapted, target: Tensor = TARGET.features) -> Labels:
    labels: Labels = infer(adapted.networks, target)[0].argmax(dim=1).numpy()
    return labels


def outputs(networks: Networks) -> int:
    assert isinstance(networks.classifier, nn.Linear)
    return networks.classifier.out_features


def weights(adapted: Adapted) -> dict[str, Tensor]:
    head, classifier = adapted.networks.head, adapted.networks.classifier
    return {**head.state_dict(), **{f"c.{k}": v for k, v in classifier.state_dict().items()}}


@pytest.fixture(scope="module")
def usual() -> Watched:
    return run(config(novel="yes"))


def test_hidden_classes_are_discovered(usual: Watched) -> None:
    true, predicted = TARGET.labels.numpy(), predictions(usual.adapted)
    shares = open_set(true, predicted, KNOWN)
    assert shares["hos"] > 0.9
    assert usual.adapted.discovery is not None
    assert abs(usual.adapted.discovery.k_star - HIDDEN) <= 1
    hidden = predicted[true >= KNOWN]
    table = contingency(hidden, true[true >= KNOWN])
    assert table.max(axis=1).sum() / table.sum() > 0.9  # each output is one class


def test_c_has_one_output_per_known_and_discovered_class(usual: Watched) -> None:
    assert usual.adapted.discovery is not None
    assert outputs(usual.adapted.networks) == KNOWN + usual.adapted.discovery.k_star


def test_stages_tell_what_happened(usual: Watched) -> None:
    assert [stage.round for stage in usual.stages] == [0, 1, 2]
    assert usual.stages[0].discovery is None
    assert set(usual.stages[0].losses) == {"source", "adversarial", "known_confusion"}
    assert set(usual.stages[2].losses) == {"source", "pseudo", "confusion"}
    assert all(stage.seconds > 0 for stage in usual.stages)
    predicted = predictions(usual.adapted)
    assert usual.stages[-1].unknown_share == pytest.approx((predicted >= KNOWN).mean())
    assert usual.stages[-1].discovery is usual.adapted.discovery


def test_c_is_reset_in_every_round_and_f_goes_on() -> None:
    seen: list[tuple[nn.Module, nn.Module]] = []
    adapt(
        SOURCE,
        TARGET.features,
        config(novel="yes", pretrain_steps=2, round_steps=2),
        on_stage=lambda stage, nets: seen.append((nets.head, nets.classifier)),
    )
    heads, classifiers = zip(*seen, strict=True)
    assert len(set(map(id, heads))) == 1
    assert len(set(map(id, classifiers))) == 3


def test_every_step_is_reported_with_its_losses() -> None:
    steps: list[int] = []
    settings = config(novel="yes", pretrain_steps=3, round_steps=2)
    adapt(SOURCE, TARGET.features, settings, on_step=lambda step, losses: steps.append(step))
    assert steps == [1, 2, 3, 1, 2, 1, 2]


def test_a_fixed_number_of_classes_is_kept() -> None:
    found = run(config(novel="yes", k=HIDDEN)).adapted
    assert outputs(found.networks) == KNOWN + HIDDEN
    true, predicted = TARGET.labels.numpy(), predictions(found)
    assert open_set(true, predicted, KNOWN)["hos"] > 0.9
    assert acc_novel(true, predicted, KNOWN) > 0.9


def test_who_fixes_the_number_says_that_there_are_new_classes() -> None:
    found = run(config(novel="auto", k=2, round_steps=2), CLOSED.features).adapted
    assert outputs(found.networks) == KNOWN + 2


def test_without_rounds_the_pretrained_model_is_the_result() -> None:
    found = run(config(iterations=0))
    assert outputs(found.adapted.networks) == KNOWN + 1
    assert (found.adapted.discovery, found.adapted.notes) == (None, [])
    assert len(found.stages) == 1


def test_no_new_class_is_wanted_and_none_is_given() -> None:
    found = run(config(novel="no", round_steps=5))
    assert outputs(found.adapted.networks) == KNOWN
    assert found.adapted.discovery is not None
    assert found.adapted.discovery.k_star == 0
    assert found.adapted.notes == []
    assert found.stages[-1].unknown_share == 0


def test_auto_finds_new_classes_where_many_images_are_called_unknown() -> None:
    found = run(config(novel="auto"))
    assert found.stages[0].unknown_share > novelty.SURE_SHARE
    assert outputs(found.adapted.networks) > KNOWN
    assert not any(note.startswith(("nothing new", "uncertain")) for note in found.adapted.notes)


@pytest.mark.parametrize("iterations", [1, 2])
def test_auto_finds_nothing_where_nothing_is_and_says_so_once(
    iterations: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(novelty, "SURE_SHARE", 1.0)  # the game alone may call a third unknown
    found = run(config(novel="auto", iterations=iterations), CLOSED.features)
    assert outputs(found.adapted.networks) == KNOWN
    assert len(found.adapted.notes) == 1
    assert found.adapted.notes[0].startswith("nothing new found: ")
    predicted = predictions(found.adapted, CLOSED.features)
    assert (predicted == CLOSED.labels.numpy()).mean() > 0.95


def test_auto_is_uncertain_where_neighbours_disagree(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(novelty, "SURE_SHARE", 1.0)
    noise = torch.randn(100, WIDTH, generator=Generator().manual_seed(0))
    found = run(config(novel="auto", iterations=1), noise).adapted
    assert outputs(found.networks) == KNOWN
    assert found.notes[0].startswith("uncertain: ")


@pytest.mark.parametrize("fields", [{}, {"adversary": "class"}, {"assignment": "joint"}])
def test_the_paper_preset_runs(fields: dict[str, Any]) -> None:
    settings = config("paper", **{"round_steps": 0, "iterations": 3, **fields})
    found = run(settings)
    shares = open_set(TARGET.labels.numpy(), predictions(found.adapted), KNOWN)
    assert settings.preset == "paper"
    assert len(found.stages) == 4
    assert outputs(found.adapted.networks) > KNOWN
    assert shares["os_star"] > 0.6


def test_the_same_seed_gives_the_same_weights_and_another_others(usual: Watched) -> None:
    again, other = (
        run(config(novel="yes")).adapted,
        run(config(novel="yes", seed=1, iterations=0)).adapted,
    )
    expected = weights(usual.adapted)
    assert all(torch.equal(expected[name], value) for name, value in weights(again).items())
    assert not torch.equal(weights(other)["0.weight"], expected["0.weight"])


class KilledError(Exception):
    pass


@pytest.mark.parametrize("preset", ["robust", "paper"])
def test_a_run_killed_after_any_round_ends_with_the_same_weights(
    preset: str, tmp_path: Path
) -> None:
    settings = config(preset, novel="yes", pretrain_steps=10, round_steps=6)
    whole = run(settings, folder=tmp_path / "whole").adapted
    for killed_after in (0, 1, 2):
        folder = tmp_path / str(killed_after)

        def kill(stage: Stage, networks: Networks, last: int = killed_after) -> None:
            if stage.round == last:
                raise KilledError

        with pytest.raises(KilledError):
            adapt(SOURCE, TARGET.features, settings, checkpoints=folder, on_stage=kill)
        torch.rand(7)  # what another process draws in between is another matter
        resumed: list[int] = []
        again = adapt(
            SOURCE, TARGET.features, settings, checkpoints=folder, on_resume=resumed.append
        )
        # The round under way is lost, and no other: a stage is reported before it is saved.
        assert resumed == ([killed_after - 1] if killed_after else [])
        expected = weights(whole)
        assert all(torch.equal(expected[name], value) for name, value in weights(again).items())
        assert again.notes == whole.notes
        assert again.discovery is not None
        assert whole.discovery is not None
        np.testing.assert_array_equal(
            again.discovery.implicit_labels, whole.discovery.implicit_labels
        )


def test_a_damaged_last_checkpoint_costs_one_round(tmp_path: Path) -> None:
    settings = config(novel="yes", pretrain_steps=20, round_steps=10)
    whole = run(settings, folder=tmp_path).adapted
    (tmp_path / "round-0002.pt").write_bytes(b"torn")
    found = run(settings, folder=tmp_path)
    assert [stage.round for stage in found.stages] == [2]
    expected = weights(whole)
    assert all(torch.equal(expected[n], value) for n, value in weights(found.adapted).items())


def test_checkpoints_of_another_model_are_refused(tmp_path: Path) -> None:
    settings = config(novel="no", pretrain_steps=2, round_steps=2)
    run(settings, folder=tmp_path)
    with pytest.raises(GateError, match="no checkpoint can be read"):
        run(config(novel="no", head_widths=(5,)), folder=tmp_path)


def test_class_numbers_stay_from_round_to_round(monkeypatch: pytest.MonkeyPatch) -> None:
    rounds: list[Discovery] = []
    turns = iter([False, True, False])

    def another_order(*args: Any, **kwargs: Any) -> Discovery:
        found = discover(*args, **kwargs)
        labels = found.implicit_labels
        return replace(found, implicit_labels=1 - labels if next(turns) else labels)

    monkeypatch.setattr(alternate, "discover", another_order)
    adapt(
        SOURCE,
        TARGET.features,
        config(novel="yes", k=2, iterations=3),
        on_stage=lambda stage, _: rounds.append(stage.discovery) if stage.discovery else None,
    )
    for before, after in pairwise(rounds):
        old = dict(zip(before.candidates.implicit, before.implicit_labels, strict=True))
        new = dict(zip(after.candidates.implicit, after.implicit_labels, strict=True))
        shared = old.keys() & new.keys()
        assert sum(old[image] == new[image] for image in shared) > 0.9 * len(shared)


def test_statistics_for_inference_are_of_training_or_of_the_target_as_asked() -> None:
    for batchnorm in ("running", "target"):
        settings = config(novel="no", batchnorm=batchnorm, pretrain_steps=5, round_steps=2)
        nets = run(settings).adapted.networks
        stored = nets.head.state_dict()["1.running_mean"].clone()
        refresh_batchnorm(nets, TARGET.features)
        of_target = nets.head.state_dict()["1.running_mean"]
        assert torch.allclose(stored, of_target) == (batchnorm == "target")


def test_pseudo_labels_put_discovered_classes_behind_the_known() -> None:
    target = torch.arange(12.0).view(6, 2)
    candidates = Candidates(np.array([5, 0]), np.array([1, 2]), np.array([3, 1]))
    pseudo = pseudo_labelled(target, Discovery(2, candidates, np.array([1, 0]), None, []), 3)
    assert pseudo.features.tolist() == target[[5, 0, 3, 1]].tolist()
    assert pseudo.labels.tolist() == [1, 2, 4, 3]


def test_pseudo_labels_of_a_closed_round_are_known() -> None:
    nothing = np.empty(0, np.int64)
    candidates = Candidates(np.array([1]), np.array([0]), nothing)
    pseudo = pseudo_labelled(torch.zeros(3, 2), Discovery(0, candidates, nothing, None, []), 3)
    assert pseudo.labels.tolist() == [0]
    assert pseudo.labels.dtype == torch.int64


@pytest.mark.parametrize("preset", ["robust", "paper"])
@pytest.mark.parametrize("novel", ["yes", "no", "auto"])
def test_a_target_of_few_images_is_no_trouble(preset: str, novel: str) -> None:
    settings = config(preset, novel=novel, pretrain_steps=3, round_steps=2)
    for images in (2, 3, 5):
        target = TARGET.features[:: len(TARGET.features) // images][:images]
        found = run(settings, target).adapted
        assert infer(found.networks, target)[0].isfinite().all()
