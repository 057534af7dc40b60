import os
import re
import signal
import time
from dataclasses import dataclass, replace
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Generator, Tensor, nn

from scda.adapt.config import TrainConfig
from scda.adapt.config_file import resolve
from scda.adapt.data.dataset import Labelled
from scda.adapt.discovery.counting.estimate import KEstimate
from scda.adapt.discovery.counting.estimators import ESTIMATORS
from scda.adapt.discovery.discover import Discovery, discover
from scda.adapt.discovery.kmeans import Points
from scda.adapt.discovery.matching import contingency
from scda.adapt.discovery.novelty.orphans import Orphans
from scda.adapt.discovery.propagation import neighbour_graph, propagate
from scda.adapt.discovery.selection import Candidates
from scda.adapt.evaluation.metrics import Labels, acc_novel, open_set
from scda.adapt.runtime.signals import Terminated
from scda.adapt.training import algorithm, discovery_step
from scda.adapt.training.algorithm import Adapted, adapt, pseudo_labelled
from scda.adapt.training.domains import Domains
from scda.adapt.training.losses import class_confusion
from scda.adapt.training.networks import Networks, infer, infer_together, refresh_batchnorm
from scda.adapt.training.runner import Callbacks
from scda.adapt.training.state import RunState
from scda.models.errors import GateError
from scda.models.index import Ids

WIDTH, KNOWN, HIDDEN, EACH = 8, 3, 2, 30
SMALL: dict[str, Any] = {
    "head_widths": (32, 16),
    "lr": 0.01,
    "k_max": 6,
    "restarts": 2,
    "pretrain_steps": 60,
    "ensemble": 1,
    "round_steps": 40,
    "rounds": 2,
    "batch_size": 16,
}


def config(preset: str = "robust", **fields: Any) -> TrainConfig:
    return resolve({"preset": preset, **SMALL, **fields})


def domain(classes: int, *, shift: float, seed: int, width: int = WIDTH) -> Labelled:
    """Return groups of images around corners; a domain is shifted against the other."""
    numbers = torch.arange(classes).repeat_interleave(EACH)
    noise = torch.randn(len(numbers), width, generator=Generator().manual_seed(seed))
    return Labelled(4 * torch.eye(width)[numbers] + 0.4 * noise + shift, numbers)


def few_new() -> Labelled:
    """Return images of six known classes, and as many of another one around a corner of its own.

    These resemble one known class or another, each by chance, as images of a new class do.
    """
    known = domain(MANY, shift=0.3, seed=5, width=2 * WIDTH)
    chance = torch.randn(EACH, 2 * WIDTH, generator=Generator().manual_seed(6))
    chance[:, MANY:] *= 0.4
    new = 4 * torch.eye(2 * WIDTH)[MANY] + chance + 0.3
    labels = torch.cat([known.labels, torch.full((EACH,), MANY)])
    return Labelled(torch.cat([known.features, new]), labels)


SOURCE = domain(KNOWN, shift=0.0, seed=1)
TARGET = domain(KNOWN + HIDDEN, shift=0.3, seed=2)
CLOSED = domain(KNOWN, shift=0.3, seed=3)
MANY = 6
MANY_SOURCE = domain(MANY, shift=0.0, seed=1, width=2 * WIDTH)
FEW_NEW = few_new()


@dataclass
class Watched:
    adapted: Adapted
    stages: list[RunState]


def run(
    settings: TrainConfig,
    target: Tensor = TARGET.features,
    folder: Path | None = None,
    *,
    source: Labelled = SOURCE,
) -> Watched:
    stages: list[RunState] = []
    adapted = adapt(
        source,
        target,
        settings,
        checkpoints=folder,
        callbacks=Callbacks(on_stage=stages.append),
    )
    return Watched(adapted, stages)


def predictions(adapted: Adapted, target: Tensor = TARGET.features) -> Labels:
    labels: Labels = infer(adapted.networks, target)[0].argmax(dim=1).numpy()
    return labels


def statuses(adapted: Adapted) -> list[str]:
    return [finding.status for finding in adapted.findings]


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
    assert [stage.stage for stage in usual.stages] == [0, 1, 2]
    assert usual.stages[0].discovery is None
    assert set(usual.stages[0].losses) == {"source", "adversarial", "known_confusion"}
    assert set(usual.stages[2].losses) == {"source", "pseudo", "confusion"}
    assert all(stage.seconds > 0 for stage in usual.stages)
    predicted = predictions(usual.adapted)
    assert usual.stages[-1].unknown_share == pytest.approx((predicted >= KNOWN).mean())
    assert usual.stages[-1].discovery is usual.adapted.discovery


def test_the_time_of_a_round_includes_its_discovery(monkeypatch: pytest.MonkeyPatch) -> None:
    def slow(*arguments: Any) -> Discovery:
        time.sleep(0.5)
        return discovery_step.discover_classes(*arguments)

    monkeypatch.setattr(algorithm, "discover_classes", slow)
    stages = run(config(pretrain_steps=2, round_steps=2, rounds=1)).stages
    assert stages[1].seconds >= 0.5


def test_c_is_reset_in_every_round_and_f_goes_on() -> None:
    seen: list[tuple[nn.Module, nn.Module]] = []
    adapt(
        SOURCE,
        TARGET.features,
        config(novel="yes", pretrain_steps=2, round_steps=2),
        callbacks=Callbacks(
            on_stage=lambda state: seen.append((state.networks.head, state.networks.classifier))
        ),
    )
    heads, classifiers = zip(*seen, strict=True)
    assert len(set(map(id, classifiers))) == 3
    first, second, third = (next(head.parameters()) for head in heads)
    for before, after in ((first, second), (second, third)):  # two steps apart, not another start
        assert 0 < (after - before).abs().max() < 0.05


def test_every_step_is_reported_with_its_losses() -> None:
    steps: list[int] = []
    settings = config(novel="yes", pretrain_steps=3, round_steps=2)
    callbacks = Callbacks(on_step=lambda step, losses: steps.append(step))
    adapt(SOURCE, TARGET.features, settings, callbacks=callbacks)
    assert steps == [1, 2, 3, 1, 2, 1, 2]


def test_a_fixed_number_of_classes_is_kept() -> None:
    found = run(config(novel="yes", k=HIDDEN, round_steps=200)).adapted
    assert outputs(found.networks) == KNOWN + HIDDEN
    true, predicted = TARGET.labels.numpy(), predictions(found)
    assert open_set(true, predicted, KNOWN)["hos"] > 0.9
    assert acc_novel(true, predicted, KNOWN, 100) > 0.9


def test_who_fixes_the_number_says_that_there_are_new_classes() -> None:
    found = run(config(novel="auto", k=2, round_steps=2), CLOSED.features).adapted
    assert outputs(found.networks) == KNOWN + 2


def test_without_rounds_the_pretrained_model_is_the_result() -> None:
    found = run(config(rounds=0))
    assert outputs(found.adapted.networks) == KNOWN + 1
    assert (found.adapted.discovery, found.adapted.findings) == (None, [])
    assert len(found.stages) == 1


def test_no_new_class_is_wanted_and_none_is_given() -> None:
    found = run(config(novel="no", round_steps=5))
    assert outputs(found.adapted.networks) == KNOWN
    assert found.adapted.discovery is not None
    assert found.adapted.discovery.k_star == 0
    assert found.stages[-1].unknown_share == 0


def test_where_no_new_class_is_wanted_images_that_look_new_join_the_class_they_resemble(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    resembled = np.arange(len(TARGET.labels)) % KNOWN
    posterior = (0.7 * np.eye(KNOWN)[resembled] + 0.1).astype(np.float32)
    new = np.ones(len(resembled), bool)
    orphans = Orphans(posterior, np.ones(len(resembled), np.float32), new, 9.0)
    monkeypatch.setattr(discovery_step, "find_orphans", lambda *arguments, **options: orphans)
    found = run(config(novel="no", rounds=1, pretrain_steps=2, round_steps=2)).adapted.discovery
    assert found is not None
    assert (found.candidates.known_labels == resembled[found.candidates.known]).all()


def test_of_a_target_without_new_classes_nothing_is_said_where_none_is_wanted() -> None:
    assert run(config(novel="no", round_steps=20), CLOSED.features).adapted.findings == []


def test_auto_finds_new_classes() -> None:
    found = run(config(novel="auto")).adapted
    assert outputs(found.networks) > KNOWN
    assert "nothing new found" not in statuses(found)
    assert found.discovery is not None
    assert found.discovery.verdict is None
    assert open_set(TARGET.labels.numpy(), predictions(found), KNOWN)["hos"] > 0.9


@pytest.mark.parametrize("rounds", [1, 2])
def test_auto_finds_nothing_where_nothing_is_and_reports_it_once(rounds: int) -> None:
    found = run(config(novel="auto", rounds=rounds), CLOSED.features)
    assert outputs(found.adapted.networks) == KNOWN
    assert statuses(found.adapted) == ["nothing new found"]
    predicted = predictions(found.adapted, CLOSED.features)
    assert (predicted == CLOSED.labels.numpy()).mean() > 0.95


@pytest.fixture(scope="module")
def few() -> Watched:
    settings = config(novel="auto", rounds=3, round_steps=150)
    return run(settings, FEW_NEW.features, source=MANY_SOURCE)


def test_auto_finds_a_few_new_images(few: Watched) -> None:
    found = few.adapted.discovery
    assert found is not None
    assert found.k_star >= 1
    assert outputs(few.adapted.networks) == MANY + found.k_star
    true, predicted = FEW_NEW.labels.numpy(), predictions(few.adapted, FEW_NEW.features)
    known = true < MANY
    assert (predicted[known] == true[known]).mean() > 0.95
    assert (predicted[~known] >= MANY).mean() > 0.7


def test_a_target_of_many_known_classes_and_no_new_one_ends_closed() -> None:
    target = domain(MANY, shift=0.3, seed=5, width=2 * WIDTH)
    found = run(config(novel="auto", rounds=3), target.features, source=MANY_SOURCE)
    assert statuses(found.adapted) == ["nothing new found"]
    assert found.adapted.discovery is not None
    assert found.adapted.discovery.k_star == 0
    assert outputs(found.adapted.networks) == MANY
    assert (predictions(found.adapted, target.features) == target.labels.numpy()).mean() > 0.95


def test_the_result_takes_features_of_the_backbone(usual: Watched) -> None:
    """F was trained on whitened inputs; the final F whitens by itself."""
    logits, _ = infer(usual.adapted.networks, TARGET.features)
    trained = usual.stages[-1]
    domains = Domains(SOURCE, TARGET.features, config())
    expected, _ = infer(trained.networks, domains.target)
    torch.testing.assert_close(logits, expected, atol=1e-4, rtol=1e-4)
    assert trained.predicted is not None
    assert torch.equal(logits.argmax(dim=1), trained.predicted)


def test_false_classes_are_dropped_from_c_and_from_the_discovery(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kept: list[int] = []

    def drop_the_first(logits: Points, near: Ids, num_known: int) -> Ids:
        kept.append(logits.shape[1] - 1)
        return np.delete(np.arange(logits.shape[1]), num_known)

    monkeypatch.setattr(discovery_step, "kept_outputs", drop_the_first)
    found = run(config(novel="auto", rounds=1)).adapted
    assert found.discovery is not None
    assert outputs(found.networks) == kept[0] == KNOWN + found.discovery.k_star
    assert found.discovery.k_path == (found.discovery.k_star,)
    assert set(found.discovery.implicit_labels.tolist()) == set(range(found.discovery.k_star))


def test_where_all_classes_are_false_nothing_is_new(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(discovery_step, "kept_outputs", lambda *_: np.arange(KNOWN))
    found = run(config(novel="auto", rounds=1)).adapted
    assert outputs(found.networks) == KNOWN
    assert statuses(found)[0] == "nothing new found"
    stated = run(config(novel="yes", rounds=1)).adapted
    assert outputs(stated.networks) > KNOWN


def test_predictions_spread_to_neighbours_before_classes_are_looked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given: list[Points] = []
    alone: list[Points] = []

    def look(logits: Points, *args: Any, **kwargs: Any) -> Discovery:
        given.append(logits)
        return discover(logits, *args, **kwargs)

    monkeypatch.setattr(discovery_step, "discover", look)

    def keep(state: RunState) -> None:
        if state.stage == 0:
            alone.append(infer_together(state.networks, TARGET.features)[0].numpy())

    fields: dict[str, Any] = {
        "novel": "yes",
        "pretrain_steps": 5,
        "round_steps": 2,
        "space": "backbone",
        "novelty": "predicted",
    }
    for alpha, members in ((0.9, 1), (0.0, 1), (0.0, 3)):
        adapt(
            SOURCE,
            TARGET.features,
            config(propagation_alpha=alpha, rounds=1, ensemble=members, **fields),
            callbacks=Callbacks(on_stage=keep),
        )
    graph = neighbour_graph(TARGET.features.numpy())
    np.testing.assert_array_equal(given[0], propagate(alone[0], graph, 0.9))
    np.testing.assert_array_equal(given[1], alone[1])
    np.testing.assert_array_equal(given[2], alone[2])
    assert not np.array_equal(alone[1], alone[2])  # of one network, and of three


def test_every_round_adds_its_number_of_classes_to_the_path(usual: Watched) -> None:
    rounds = [stage.discovery for stage in usual.stages if stage.discovery]
    assert [found.k_path for found in rounds] == [
        (rounds[0].k_star,),
        (rounds[0].k_star, rounds[1].k_star),
    ]


def test_what_the_user_should_not_trust_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ESTIMATORS, "graph", lambda space: KEstimate(1))
    settings = config(novel="yes", k_method="scda", rounds=1)
    assert "k unsure" in statuses(run(settings).adapted)
    strange = run(config(novel="yes", round_steps=2), -TARGET.features).adapted
    assert "weak transfer" in statuses(strange)
    assert strange.trust.expected_accuracy < 0.6


@pytest.mark.parametrize("fields", [{}, {"adversary": "class"}, {"assignment": "joint"}])
def test_the_paper_preset_runs(fields: dict[str, Any]) -> None:
    settings = config("paper", **{"round_steps": 0, "rounds": 3, **fields})
    found = run(settings)
    shares = open_set(TARGET.labels.numpy(), predictions(found.adapted), KNOWN)
    assert settings.preset == "paper"
    assert len(found.stages) == 4
    assert outputs(found.adapted.networks) > KNOWN
    assert shares["os_star"] > 0.6


def test_the_same_seed_gives_the_same_weights_and_another_others(usual: Watched) -> None:
    again, other = (
        run(config(novel="yes")).adapted,
        run(config(novel="yes", seed=1, rounds=0)).adapted,
    )
    expected = weights(usual.adapted)
    assert all(torch.equal(expected[name], value) for name, value in weights(again).items())
    assert not torch.equal(weights(other)["1.weight"], expected["1.weight"])


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

        def kill(state: RunState, last: int = killed_after) -> None:
            if state.stage == last:
                raise KilledError

        stopping = Callbacks(on_stage=kill)
        with pytest.raises(KilledError):
            adapt(SOURCE, TARGET.features, settings, checkpoints=folder, callbacks=stopping)
        torch.rand(7)  # what another process draws in between is another matter
        resumed: list[tuple[int, int]] = []
        again = adapt(
            SOURCE,
            TARGET.features,
            settings,
            checkpoints=folder,
            callbacks=Callbacks(on_resume=lambda *at, seen=resumed: seen.append(at)),
        )
        # The round under way is lost, and no other: a stage is reported before it is saved.
        assert resumed == ([(killed_after - 1, 0)] if killed_after else [])
        expected = weights(whole)
        assert all(torch.equal(expected[name], value) for name, value in weights(again).items())
        assert again.findings == whole.findings
        assert again.discovery is not None
        assert whole.discovery is not None
        np.testing.assert_array_equal(
            again.discovery.implicit_labels, whole.discovery.implicit_labels
        )


@pytest.mark.parametrize("preset", ["robust", "paper"])
@pytest.mark.parametrize("stage", [0, 1, 2])
def test_a_signal_ends_a_run_after_the_step_and_it_goes_on_to_the_same_weights(
    preset: str, stage: int, tmp_path: Path
) -> None:
    settings = config(preset, novel="yes", pretrain_steps=10, round_steps=6)
    whole = run(settings).adapted
    steps: list[tuple[int, int]] = []
    finished: list[int] = []

    def on_step(step: int, losses: dict[str, float]) -> None:
        steps.append((len(finished), step))
        if steps[-1] == (stage, 4):
            os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(Terminated):
        adapt(
            SOURCE,
            TARGET.features,
            settings,
            checkpoints=tmp_path,
            callbacks=Callbacks(
                on_step=on_step, on_stage=lambda state: finished.append(state.stage)
            ),
        )
    assert steps[-1] == (stage, 4)
    torch.rand(7)
    resumed: list[tuple[int, int]] = []
    again = adapt(
        SOURCE,
        TARGET.features,
        settings,
        checkpoints=tmp_path,
        callbacks=Callbacks(on_resume=lambda *at: resumed.append(at)),
    )
    assert resumed == [(stage - 1, 4)]
    expected = weights(whole)
    assert all(torch.equal(expected[name], value) for name, value in weights(again).items())
    assert again.findings == whole.findings


class Losing:
    """The confusion loss, not a number from one of its calls to another."""

    def __init__(self, calls: range) -> None:
        self.nan, self.calls = calls, 0

    def __call__(self, *arguments: Any, **options: Any) -> Tensor:
        self.calls += 1
        loss = class_confusion(*arguments, **options)
        return loss * torch.nan if self.calls in self.nan else loss


SHORT: dict[str, Any] = {"novel": "yes", "pretrain_steps": 10, "round_steps": 6}


@pytest.mark.parametrize("stage", [0, 1])
def test_a_stage_that_diverges_is_tried_again_from_the_state_before(
    stage: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost = range(5, 8) if stage == 0 else range(13, 16)  # steps 5 to 7, or 3 to 5 of round 1
    monkeypatch.setattr("scda.adapt.training.loop.class_confusion", Losing(lost))
    steps: list[int] = []
    found: list[RunState] = []
    adapted = adapt(
        SOURCE,
        TARGET.features,
        config(**SHORT),
        callbacks=Callbacks(on_step=lambda step, losses: steps.append(step), on_stage=found.append),
    )
    assert [at.restarts for at in found] == [int(at.stage == stage) for at in found]
    once = [list(range(1, 11)), list(range(1, 7)), list(range(1, 7))]
    once.insert(stage, list(range(1, 7 if stage == 0 else 5)))  # the third in a row is the end
    assert steps == list(chain(*once))
    assert adapted.failure == ""
    assert all(value.isfinite().all() for value in weights(adapted).values())


def test_a_run_stopped_after_a_return_ends_with_the_same_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    losing = "scda.adapt.training.loop.class_confusion"
    monkeypatch.setattr(losing, Losing(range(13, 16)))
    whole = run(config(**SHORT)).adapted
    monkeypatch.setattr(losing, Losing(range(13, 16)))
    seen: list[int] = []

    def on_step(step: int, losses: dict[str, float]) -> None:
        seen.append(step)
        if len(seen) == 10 + 4 + 3:  # step 3 of the second try
            os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(Terminated):
        adapt(
            SOURCE,
            TARGET.features,
            config(**SHORT),
            checkpoints=tmp_path,
            callbacks=Callbacks(on_step=on_step),
        )
    again = run(config(**SHORT), folder=tmp_path)
    assert again.stages[0].restarts == 1
    expected = weights(whole)
    values = weights(again.adapted).items()
    assert all(torch.equal(expected[name], value) for name, value in values)


@pytest.mark.parametrize("stop", [7, 10 + 3])  # in pre-training, in round 1
def test_an_ensemble_that_was_stopped_ends_with_the_same_weights(tmp_path: Path, stop: int) -> None:
    settings = config(**{**SHORT, "ensemble": 3})
    whole = run(settings).adapted
    seen: list[int] = []

    def on_step(step: int, losses: dict[str, float]) -> None:
        seen.append(step)
        if len(seen) == stop:
            os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(Terminated):
        adapt(
            SOURCE,
            TARGET.features,
            settings,
            checkpoints=tmp_path,
            callbacks=Callbacks(on_step=on_step),
        )
    again = run(settings, folder=tmp_path).adapted
    expected = weights(whole)
    assert all(torch.equal(expected[name], value) for name, value in weights(again).items())


def test_a_run_that_diverges_time_and_again_leaves_the_last_good_round(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    good = weights(run(config(**SHORT, rounds=1)).adapted)
    monkeypatch.setattr("scda.adapt.training.loop.class_confusion", Losing(range(17, 999)))
    found = run(config(**SHORT))
    assert [stage.stage for stage in found.stages] == [0, 1]
    assert all(torch.equal(good[name], value) for name, value in weights(found.adapted).items())
    assert re.match(
        r"round 2: training diverged at step 3; try a smaller --lr than 0\.01; .* of round 1$",
        found.adapted.failure,
    )
    assert statuses(found.adapted)[0] == "diverged"


@pytest.mark.parametrize("first", [1, 11])  # in pre-training, in round 1
def test_a_run_that_diverges_before_any_round_ends_has_nothing(
    first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    losing = Losing(range(first, 999))
    monkeypatch.setattr("scda.adapt.training.loop.class_confusion", losing)
    with pytest.raises(GateError, match="no round was finished, so there is no bundle"):
        run(config(**SHORT))
    assert losing.calls == first - 1 + 4 * 3  # one try and three returns, three steps each


def test_a_game_that_one_side_wins_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scda.adapt.discovery.diagnostics._MIN_SHARE", 1.1)  # nothing is enough
    found = run(config(**SHORT))
    assert [len(stage.findings) for stage in found.stages] == [0, 1, 1]
    assert statuses(found.adapted).count("game collapsed") == 1


def test_few_new_images_are_found_again_after_any_round_that_a_run_was_killed_in(
    few: Watched, tmp_path: Path
) -> None:
    settings = config(novel="auto", rounds=3, round_steps=150)
    for killed_after in range(4):
        folder = tmp_path / str(killed_after)

        def kill(state: RunState, last: int = killed_after) -> None:
            if state.stage == last:
                raise KilledError

        stopping = Callbacks(on_stage=kill)
        with pytest.raises(KilledError):
            adapt(MANY_SOURCE, FEW_NEW.features, settings, checkpoints=folder, callbacks=stopping)
        again = run(settings, FEW_NEW.features, folder, source=MANY_SOURCE).adapted
        expected = weights(few.adapted)
        assert all(torch.equal(expected[name], value) for name, value in weights(again).items())
        assert again.findings == few.adapted.findings
        assert again.discovery is not None
        assert few.adapted.discovery is not None
        assert again.discovery.k_path == few.adapted.discovery.k_path


def test_a_run_killed_after_its_last_checkpoint_says_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(ESTIMATORS, "graph", lambda space: KEstimate(1))
    settings = config(novel="yes", k_method="scda", rounds=1)
    whole = run(settings, folder=tmp_path).adapted
    again = run(settings, folder=tmp_path)
    assert again.stages == []
    assert again.adapted.findings == whole.findings
    assert "k unsure" in statuses(whole)


def test_a_damaged_last_checkpoint_costs_one_round(tmp_path: Path) -> None:
    settings = config(novel="yes", pretrain_steps=20, round_steps=10)
    whole = run(settings, folder=tmp_path).adapted
    (tmp_path / "round-0002.pt").write_bytes(b"torn")
    found = run(settings, folder=tmp_path)
    assert [stage.stage for stage in found.stages] == [2]
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

    monkeypatch.setattr(discovery_step, "discover", another_order)
    adapt(
        SOURCE,
        TARGET.features,
        config(novel="yes", k=2, rounds=3),
        callbacks=Callbacks(
            on_stage=lambda state: rounds.append(state.discovery) if state.discovery else None
        ),
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
        stored = nets.head.state_dict()["2.running_mean"].clone()
        refresh_batchnorm(nets, TARGET.features)
        of_target = nets.head.state_dict()["2.running_mean"]
        assert torch.allclose(stored, of_target) == (batchnorm == "target")


def test_pseudo_labels_put_discovered_classes_behind_the_known() -> None:
    candidates = Candidates(np.array([5, 0]), np.array([1, 2]), np.array([3, 1]))
    pseudo = pseudo_labelled(Discovery(2, candidates, np.array([1, 0]), None), 3)
    assert pseudo.rows.tolist() == [5, 0, 3, 1]
    assert pseudo.labels.tolist() == [1, 2, 4, 3]


def test_pseudo_labels_of_a_closed_round_are_known() -> None:
    nothing = np.empty(0, np.int64)
    candidates = Candidates(np.array([1]), np.array([0]), nothing)
    pseudo = pseudo_labelled(Discovery(0, candidates, nothing, None), 3)
    assert pseudo.labels.tolist() == [0]
    assert pseudo.labels.dtype == torch.int64


@pytest.mark.parametrize("preset", ["robust", "paper"])
@pytest.mark.parametrize("fields", [{"novel": "yes"}, {"novel": "no"}, {"novel": "auto"}, {"k": 2}])
@pytest.mark.parametrize("images_of", [TARGET, SOURCE], ids=["target", "source"])
def test_a_target_of_few_images_is_no_trouble(
    preset: str, fields: dict[str, Any], images_of: Labelled
) -> None:
    settings = config(preset, **{"pretrain_steps": 3, "round_steps": 2, "rounds": 3, **fields})
    for images in (2, 3, 5):
        target = images_of.features[:: len(images_of.features) // images][:images]
        found = run(settings, target).adapted
        assert infer(found.networks, target)[0].isfinite().all()


@pytest.mark.parametrize(("nats", "share"), [(50.0, 1.0), (-50.0, 0.0)])
def test_rejection_calls_more_or_fewer_images_new(nats: float, share: float) -> None:
    found = run(
        config(novel="yes", unknown_logit_bias=nats, pretrain_steps=20, round_steps=10)
    ).adapted
    assert (predictions(found) >= KNOWN).mean() == share


def test_rejection_counts_once_in_a_resumed_run(tmp_path: Path) -> None:
    settings = config(novel="yes", unknown_logit_bias=0.5, pretrain_steps=10, round_steps=6)
    whole = weights(run(settings, folder=tmp_path).adapted)
    again = weights(run(settings, folder=tmp_path).adapted)
    without = weights(run(replace(settings, unknown_logit_bias=0.0)).adapted)
    assert all(torch.equal(whole[name], value) for name, value in again.items())
    bias = list(whole)[-1]
    torch.testing.assert_close(whole[bias][KNOWN:], without[bias][KNOWN:] + 0.5)
    torch.testing.assert_close(whole[bias][:KNOWN], without[bias][:KNOWN])
