import dataclasses
import math
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Generator, Tensor, nn

from scda.adapt.config import TrainConfig
from scda.adapt.data.dataset import Labelled
from scda.adapt.training import loop
from scda.adapt.training.inputs import FeatureInputs, PseudoLabels
from scda.adapt.training.loop import Diverged, OnStep, Progress, Stopped, pretrain, retrain
from scda.adapt.training.losses import adversarial, class_confusion, class_correlation
from scda.adapt.training.networks import Networks, infer, infer_together, refresh_batchnorm
from scda.models.errors import GateError
from scda.models.networks.network import FeatureHead

WIDTH, KNOWN = 6, 3
Losses = list[dict[str, float]]


def config(**fields: Any) -> TrainConfig:
    return TrainConfig(**{"head_widths": (16, 8), "pretrain_steps": 60, "lr": 0.02, **fields})


def networks(outputs: int, *, seed: int = 0) -> Networks:
    torch.manual_seed(seed)
    head = FeatureHead(WIDTH, (16, 8))
    return Networks(head, nn.Linear(head.width, outputs))


def groups(labels: list[int], *, shift: float = 0.0, each: int = 30) -> Labelled:
    """Return `each` images around one corner per label; a domain has its own shift."""
    numbers = torch.tensor(labels).repeat_interleave(each)
    noise = torch.randn(len(numbers), WIDTH, generator=Generator().manual_seed(len(labels)))
    return Labelled(4 * torch.eye(WIDTH)[numbers] + 0.5 * noise + shift, numbers)


SOURCE, TARGET = groups([0, 1, 2]), groups([0, 1, 2, 3, 4], shift=0.3)


def run_pretrain(nets: Networks, settings: TrainConfig, on_step: OnStep) -> None:
    generator = Generator().manual_seed(0)
    pretrain(nets, SOURCE, TARGET.features, settings, generator, on_step)


def run_retrain(nets: Networks, settings: TrainConfig, on_step: OnStep) -> None:
    generator = Generator().manual_seed(0)
    inputs = FeatureInputs(SOURCE.features, TARGET.features)
    pseudo = PseudoLabels(torch.arange(len(TARGET.labels)), TARGET.labels)
    retrain(nets, inputs, SOURCE.labels, pseudo, settings, generator, on_step)


def losses_of(
    run: Callable[[Networks, TrainConfig, OnStep], None], nets: Networks, **fields: Any
) -> Losses:
    seen: Losses = []
    run(nets, config(**fields), lambda step, losses: seen.append(losses))
    return seen


def mean(seen: Losses, name: str) -> float:
    return sum(losses[name] for losses in seen) / len(seen)


def test_every_member_of_an_ensemble_learns_as_if_it_were_alone() -> None:
    members = [networks(KNOWN + 1, seed=seed) for seed in range(3)]
    alone = [networks(KNOWN + 1, seed=seed) for seed in range(3)]
    pairs = [nn.Sequential(member.head, member.classifier) for member in members[1:]]
    together = dataclasses.replace(members[0], others=nn.ModuleList(pairs))
    seen = losses_of(run_pretrain, together, pretrain_steps=8)
    by_member = [losses_of(run_pretrain, nets, pretrain_steps=8) for nets in alone]
    for member, nets in zip(together.members, alone, strict=True):
        for one, two in zip(member.modules.parameters(), nets.modules.parameters(), strict=True):
            torch.testing.assert_close(one, two)
    expected = sum(losses[-1]["source"] for losses in by_member) / 3
    assert seen[-1]["source"] == pytest.approx(expected, rel=1e-4)


def test_an_ensemble_predicts_by_the_mean_of_its_log_probabilities() -> None:
    members = [networks(KNOWN + 1, seed=seed) for seed in range(2)]
    pair = nn.Sequential(members[1].head, members[1].classifier)
    together = dataclasses.replace(members[0], others=nn.ModuleList([pair]))
    refresh_batchnorm(together, TARGET.features)
    outputs = [infer(member, TARGET.features) for member in members]
    logits, features = infer_together(together, TARGET.features)
    expected = torch.stack([of.log_softmax(dim=1) for of, _ in outputs]).mean(dim=0)
    torch.testing.assert_close(logits, expected)
    assert torch.equal(features, outputs[0][1])
    assert torch.equal(infer_together(members[1], TARGET.features)[0], outputs[1][0])


@pytest.mark.parametrize("sampling", ["balanced", "shuffled"])
@pytest.mark.parametrize("adversary", ["sample", "class", "matrix"])
def test_pretraining_learns_the_source_and_sends_a_part_of_the_target_away(
    adversary: str, sampling: str
) -> None:
    nets = networks(KNOWN + 1)
    seen = losses_of(run_pretrain, nets, adversary=adversary, sampling=sampling)
    assert set(seen[0]) == {"source", "adversarial", "known_confusion"}
    assert mean(seen[-5:], "source") < 0.5 * mean(seen[:5], "source")
    assert mean(seen[-5:], "known_confusion") < mean(seen[:5], "known_confusion")
    assert min(losses["adversarial"] for losses in seen) >= math.log(2) - 1e-6
    refresh_batchnorm(nets, SOURCE.features)
    predicted = infer(nets, SOURCE.features)[0].argmax(dim=1)
    assert (predicted == SOURCE.labels).float().mean() > 0.95


@pytest.mark.parametrize("seed", range(3))
def test_the_game_tells_unknown_target_images_from_known_ones(seed: int) -> None:
    nets = networks(KNOWN + 1, seed=seed)
    losses_of(run_pretrain, nets, pretrain_steps=80, lr=0.01)
    refresh_batchnorm(nets, TARGET.features)
    unknown = infer(nets, TARGET.features)[0].softmax(dim=1)[:, -1]
    implicit = TARGET.labels >= KNOWN
    assert unknown[implicit].mean() > 1.5 * unknown[~implicit].mean()


def test_retraining_learns_the_pseudo_classes() -> None:
    nets = networks(KNOWN + 2)
    seen = losses_of(run_retrain, nets, round_steps=60)
    assert set(seen[0]) == {"source", "pseudo", "confusion"}
    for name in seen[0]:
        assert mean(seen[-5:], name) < 0.5 * mean(seen[:5], name)
    refresh_batchnorm(nets, TARGET.features)
    assert (infer(nets, TARGET.features)[0].argmax(dim=1) == TARGET.labels).float().mean() > 0.95


def test_retraining_without_a_new_class_is_closed_set_training() -> None:
    nets = networks(KNOWN)
    known = (TARGET.labels < KNOWN).nonzero().flatten()
    pseudo, target = PseudoLabels(known, TARGET.labels[known]), TARGET.features
    inputs, settings = FeatureInputs(SOURCE.features, target), config(round_steps=5)
    retrain(nets, inputs, SOURCE.labels, pseudo, settings, Generator(), lambda step, losses: None)
    assert infer(nets, target)[0].shape == (len(target), KNOWN)


def step_by_hand(nets: Networks, losses: Callable[[], dict[str, Tensor]], signs: Any) -> None:
    """One step of plain SGD: F and C each go down their own sum of the losses."""
    for module, sign_of in signs:
        terms = losses()
        total = sum((sign_of.get(name, 1) * loss for name, loss in terms.items()), torch.zeros(()))
        gradients = torch.autograd.grad(total, list(module.parameters()))
        module.pending = gradients
    for module, _ in signs:
        with torch.no_grad():
            for weight, slope in zip(module.parameters(), module.pending, strict=True):
                weight -= 0.02 * slope


def unwrapped(nets: Networks) -> list[Tensor]:
    modules = (nets.head, nets.classifier)
    return [weight.detach().clone() for module in modules for weight in module.parameters()]


def test_one_step_of_pretraining_is_equations_5_and_6() -> None:
    fields = {"momentum": 0.0, "weight_decay": 0.0, "pretrain_steps": 1, "sampling": "shuffled"}
    nets, mine = networks(KNOWN + 1), networks(KNOWN + 1)
    everything = {**fields, "batch_size": 1000}  # one batch is the whole domain
    losses_of(run_pretrain, nets, **everything)

    def losses() -> dict[str, Tensor]:
        logits = mine.logits(TARGET.features)
        correlation = class_correlation(logits)
        of_source = mine.logits(SOURCE.features).log_softmax(dim=1)
        picked = of_source[torch.arange(len(SOURCE.labels)), SOURCE.labels]
        return {
            "source": -picked.mean(),
            "adversarial": adversarial(logits, form="sample"),
            "known_confusion": class_confusion(correlation, num_classes=KNOWN, rows="present"),
        }

    step_by_hand(mine, losses, [(mine.head, {"adversarial": -1}), (mine.classifier, {})])
    for actual, expected in zip(unwrapped(nets), unwrapped(mine), strict=True):
        torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-6)


def test_one_step_of_retraining_is_equation_11() -> None:
    fields = {"momentum": 0.0, "weight_decay": 0.0, "round_steps": 1, "sampling": "shuffled"}
    nets, mine = networks(KNOWN + 2), networks(KNOWN + 2)
    losses_of(run_retrain, nets, **fields, batch_size=1000)

    def cross_entropy(part: Labelled) -> Tensor:
        log_probs = mine.logits(part.features).log_softmax(dim=1)
        return -log_probs[torch.arange(len(part.labels)), part.labels].mean()

    def losses() -> dict[str, Tensor]:
        correlation = class_correlation(mine.logits(TARGET.features))
        return {
            "source": cross_entropy(SOURCE),
            "pseudo": cross_entropy(TARGET),
            "confusion": class_confusion(correlation, num_classes=KNOWN + 2, rows="present"),
        }

    step_by_hand(mine, losses, [(mine.head, {}), (mine.classifier, {})])
    for actual, expected in zip(unwrapped(nets), unwrapped(mine), strict=True):
        torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-6)


def test_a_stage_trains_with_batch_statistics_though_inference_came_before() -> None:
    nets = networks(KNOWN + 2)
    infer(nets, TARGET.features)
    training: list[bool] = []
    nets.head.register_forward_hook(lambda module, *_: training.append(module.training))
    losses_of(run_retrain, nets, round_steps=1)
    assert training == [True] * 3


def test_source_and_target_never_share_a_pass() -> None:
    nets = networks(KNOWN + 1)
    sizes: list[int] = []
    nets.head.register_forward_hook(lambda module, inputs, output: sizes.append(len(output)))
    losses_of(run_pretrain, nets, pretrain_steps=2, batch_size=10)
    assert sizes == [10] * 4


def test_networks_alone_are_trained() -> None:
    nets = networks(KNOWN + 1)
    before = unwrapped(nets)
    source, target = SOURCE.features.clone(), TARGET.features.clone()
    losses_of(run_pretrain, nets, pretrain_steps=1)
    assert all(not torch.equal(*pair) for pair in zip(before, unwrapped(nets), strict=True))
    assert torch.equal(SOURCE.features, source)
    assert torch.equal(TARGET.features, target)
    assert not TARGET.features.requires_grad


def test_steps_are_counted_from_1_to_what_was_asked() -> None:
    steps: list[int] = []
    run_pretrain(networks(KNOWN + 1), config(pretrain_steps=4), lambda step, _: steps.append(step))
    assert steps == [1, 2, 3, 4]
    steps.clear()
    run_retrain(networks(KNOWN + 2), config(round_steps=3), lambda step, _: steps.append(step))
    assert steps == [1, 2, 3]


@pytest.mark.parametrize(("batch_size", "expected"), [(32, 150 // 32), (150, 1), (1000, 1)])
def test_a_round_without_a_length_is_one_pass_over_the_target(
    batch_size: int, expected: int
) -> None:
    seen = losses_of(run_retrain, networks(KNOWN + 2), round_length="target", batch_size=batch_size)
    assert len(seen) == expected


def test_the_same_generator_trains_the_same() -> None:
    one, two = networks(KNOWN + 1), networks(KNOWN + 1)
    for nets in (one, two):
        losses_of(run_pretrain, nets, pretrain_steps=5)
    assert all(torch.equal(*pair) for pair in zip(unwrapped(one), unwrapped(two), strict=True))


def test_diverging_training_is_told_with_what_to_try() -> None:
    nets = networks(KNOWN + 1)
    with torch.no_grad():
        nets.classifier.weight.fill_(math.inf)  # type: ignore[operator]  # a module's attribute
    with pytest.raises(GateError, match=r"diverged at step 3; try a smaller --lr than 0\.02"):
        losses_of(run_pretrain, nets)


class Losing:
    """The confusion loss, not a number at some of its calls."""

    def __init__(self, at: set[int]) -> None:
        self.at, self.calls = at, 0

    def __call__(self, correlation: Tensor, **options: Any) -> Tensor:
        self.calls += 1
        loss = class_confusion(correlation, **options)
        return loss * math.nan if self.calls in self.at else loss


def test_a_step_without_a_finite_loss_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "class_confusion", Losing({2, 4, 5}))
    nets, weights, seen = networks(KNOWN + 1), [], []

    def on_step(step: int, losses: dict[str, float]) -> None:
        weights.append(unwrapped(nets))
        seen.append(set(losses))

    settings, generator = config(pretrain_steps=6), Generator().manual_seed(0)
    skipped = pretrain(nets, SOURCE, TARGET.features, settings, generator, on_step)
    assert skipped == (2, 4, 5)
    assert [step for step, names in enumerate(seen, 1) if not names] == [2, 4, 5]
    same = [
        all(torch.equal(*pair) for pair in zip(*both, strict=True)) for both in pairwise(weights)
    ]
    assert same == [True, False, True, True, False]


def test_three_in_a_row_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "class_confusion", Losing({2, 4, 5, 6, 8}))
    steps: list[int] = []
    with pytest.raises(Diverged, match="diverged at step 6; try a smaller --lr"):
        run_pretrain(networks(KNOWN + 1), config(), lambda step, _: steps.append(step))
    assert steps == [1, 2, 3, 4, 5]


def test_weights_that_the_last_step_broke_are_found() -> None:
    nets = networks(KNOWN + 1)

    def breaks(step: int, losses: dict[str, float]) -> None:
        with torch.no_grad():
            next(nets.head.parameters())[0, 0] = math.inf

    with pytest.raises(Diverged, match="diverged at step 2"):
        run_pretrain(nets, config(pretrain_steps=2), breaks)


@pytest.mark.parametrize("sampling", ["balanced", "shuffled"])
@pytest.mark.parametrize(("stage", "outputs"), [("pretrain", KNOWN + 1), ("retrain", KNOWN + 2)])
def test_a_stage_stopped_after_any_step_goes_on_to_the_same_weights(
    stage: str, outputs: int, sampling: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = config(pretrain_steps=7, round_steps=7, sampling=sampling, batch_size=40)

    def go(nets: Networks, generator: Generator, stop_at: int, progress: Progress) -> Any:
        rest = (settings, generator, lambda step, losses: step == stop_at, progress)
        if stage == "pretrain":
            return pretrain(nets, SOURCE, TARGET.features, *rest)
        inputs = FeatureInputs(SOURCE.features, TARGET.features)
        pseudo = PseudoLabels(torch.arange(len(TARGET.labels)), TARGET.labels)
        return retrain(nets, inputs, SOURCE.labels, pseudo, *rest)

    whole = networks(outputs)
    monkeypatch.setattr(loop, "class_confusion", Losing({2, 4}))
    expected = go(whole, Generator().manual_seed(0), 0, Progress())
    for stop_at in (1, 3, 4, 7):
        nets = networks(outputs)
        monkeypatch.setattr(loop, "class_confusion", Losing({2, 4}))
        with pytest.raises(Stopped) as stopped:
            go(nets, Generator().manual_seed(0), stop_at, Progress())
        assert stopped.value.progress.step == stop_at
        skipped = go(nets, Generator().manual_seed(0), 0, stopped.value.progress)
        assert skipped == expected == (2, 4)
        pairs = zip(unwrapped(nets), unwrapped(whole), strict=True)
        assert all(torch.equal(*pair) for pair in pairs)


def test_a_learning_rate_far_too_large_ends_in_the_same_error() -> None:
    torch.manual_seed(0)
    nets = Networks(nn.Linear(WIDTH, 8), nn.Linear(8, KNOWN + 1))  # batch norm would hold it
    with pytest.raises(GateError, match=r"diverged at step \d+; try a smaller --lr than 0\.9"):
        losses_of(run_pretrain, nets, lr=0.9, pretrain_steps=500)


def test_inference_uses_stored_statistics_and_leaves_them() -> None:
    nets = networks(KNOWN + 1)
    losses_of(run_pretrain, nets, pretrain_steps=5)
    before = {name: value.clone() for name, value in nets.head.state_dict().items()}
    logits, features = infer(nets, TARGET.features)
    alone, _ = infer(nets, TARGET.features[:1])
    assert logits.shape == (150, 4)
    assert features.shape == (150, 8)
    assert not logits.requires_grad
    torch.testing.assert_close(alone, logits[:1])
    torch.testing.assert_close(nets.classifier(features), logits)
    assert all(torch.equal(before[name], value) for name, value in nets.head.state_dict().items())


def test_inference_in_parts_is_inference_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    nets = networks(KNOWN + 1)
    whole = infer(nets, TARGET.features)
    monkeypatch.setattr("scda.adapt.training.networks._BATCHNORM_ROWS", 40)
    for part, expected in zip(infer(nets, TARGET.features), whole, strict=True):
        torch.testing.assert_close(part, expected)


def batchnorms(nets: Networks) -> list[nn.BatchNorm1d]:
    return [module for module in nets.head.modules() if isinstance(module, nn.BatchNorm1d)]


def test_refreshed_statistics_are_those_of_the_whole_target() -> None:
    nets = networks(KNOWN + 1)
    losses_of(run_pretrain, nets, pretrain_steps=5)
    refresh_batchnorm(nets, TARGET.features)
    values = TARGET.features
    for layer in nets.head.children():
        if isinstance(layer, nn.BatchNorm1d):
            torch.testing.assert_close(layer.running_mean, values.mean(dim=0))
            torch.testing.assert_close(layer.running_var, values.var(dim=0))
            scaled = (values - values.mean(dim=0)) / (values.var(dim=0, correction=0) + 1e-5).sqrt()
            values = layer.weight * scaled + layer.bias
        else:
            values = layer(values)
        values = values.detach()


def test_refreshing_forgets_what_was_there() -> None:
    nets = networks(KNOWN + 1)
    for layer in batchnorms(nets):
        assert layer.running_mean is not None
        layer.running_mean.fill_(1e6)
    refresh_batchnorm(nets, TARGET.features)
    once = {name: value.clone() for name, value in nets.head.state_dict().items()}
    refresh_batchnorm(nets, TARGET.features)
    for name, value in nets.head.state_dict().items():
        torch.testing.assert_close(value, once[name])
    assert all(layer.momentum == 0.1 for layer in batchnorms(nets))


@pytest.mark.parametrize("rows", [10, 149, 60])
def test_a_target_in_parts_gives_nearly_the_same_statistics_whatever_its_order(
    rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    nets = networks(KNOWN + 1)
    refresh_batchnorm(nets, TARGET.features)
    first = batchnorms(nets)[0]
    assert first.running_mean is not None
    assert first.running_var is not None
    mean_of_all, var_of_all = first.running_mean.clone(), first.running_var.clone()
    monkeypatch.setattr("scda.adapt.training.networks._BATCHNORM_ROWS", rows)
    sizes: list[int] = []
    nets.head.register_forward_hook(lambda module, inputs, output: sizes.append(len(output)))
    refresh_batchnorm(nets, TARGET.features)  # sorted by class, as folders are
    assert sum(sizes) == len(TARGET.features)
    assert max(sizes) <= rows
    assert min(sizes) >= max(sizes) - 1  # so that none counts for more
    # Each part is a sample of all: its mean wanders by a tenth of a standard deviation or two.
    deviation = (first.running_mean - mean_of_all).abs() / var_of_all.sqrt()
    assert deviation.max() < 0.02
    torch.testing.assert_close(first.running_var, var_of_all, rtol=0.15, atol=0)


def test_two_images_are_enough_for_every_stage() -> None:
    settings = config(pretrain_steps=2, round_steps=2, sampling="shuffled")
    two, one = TARGET.features[:2], PseudoLabels(torch.tensor([0]), TARGET.labels[:1])
    generator = Generator().manual_seed(0)
    nets = networks(KNOWN + 1)
    pretrain(nets, SOURCE, two, settings, generator, lambda step, losses: None)
    inputs = FeatureInputs(SOURCE.features, two)
    retrain(nets, inputs, SOURCE.labels, one, settings, generator, lambda step, losses: None)
    refresh_batchnorm(nets, two)
    assert infer(nets, two)[0].isfinite().all()


def test_the_networks_can_be_replaced_one_by_one() -> None:
    nets = networks(KNOWN + 1)
    larger = dataclasses.replace(nets, classifier=nn.Linear(8, 9))
    assert larger.logits(TARGET.features).shape == (150, 9)
    assert larger.head is nets.head
