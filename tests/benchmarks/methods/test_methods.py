"""Every method on made-up features: known and unknown clusters, moved between the domains."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - as everybody writes it

from benchmarks.methods import dance, ovanet, pgl, shot, sta, tim, uniot
from benchmarks.methods.training import UNKNOWN, Prediction, Prototypes, minimise, total_steps
from benchmarks.open_set import baselines
from benchmarks.open_set.baselines import METHODS, divided, measure_other, predict
from benchmarks.open_set.protocols import Lists
from benchmarks.open_set.runs import Inputs, Run
from scda.adapt.config import TrainConfig
from scda.adapt.data.dataset import Labelled
from scda.adapt.evaluation.metrics import open_set
from scda.adapt.training.networks import Networks

KNOWN, NEW, PER_CLASS, WIDTH = 5, 4, 24, 32
CONFIG = TrainConfig(
    head_widths=(64, 32), pretrain_steps=150, round_steps=30, rounds=2, lr=3e-3, k_max=8
)


@dataclass(frozen=True)
class Made:
    inputs: Inputs
    truth: np.ndarray[tuple[int], np.dtype[np.int64]]


@pytest.fixture(scope="module")
def made() -> Made:
    """5 known and 4 new Gaussians; the target is moved by nearly half of the classes' spread."""
    rng = np.random.default_rng(0)
    centres = rng.normal(0, 1, (KNOWN + NEW, WIDTH))
    shift = rng.normal(0, 0.4, WIDTH)
    of_source = np.repeat(np.arange(KNOWN), PER_CLASS)
    truth = rng.permutation(np.repeat(np.arange(KNOWN + NEW), PER_CLASS))

    def images(labels: np.ndarray[tuple[int], np.dtype[np.int64]]) -> torch.Tensor:
        points = centres[labels] + rng.normal(0, 0.5, (len(labels), WIDTH))
        return torch.from_numpy(points.astype(np.float32))

    source = Labelled(images(of_source), torch.from_numpy(of_source))
    return Made(Inputs(source, images(truth) + torch.from_numpy(shift).float()), truth)


@pytest.mark.parametrize("method", METHODS)
def test_a_method_knows_known_classes_and_rejects_new_ones(made: Made, method: str) -> None:
    prediction = predict(method, made.inputs, CONFIG)
    labels = prediction.labels.numpy()
    shares = open_set(made.truth, np.where(labels == UNKNOWN, KNOWN, labels), KNOWN)
    # Chance is 0.2 for OS*; who rejects at random gets OS* + UNK = 1 even with all classes right.
    assert shares["os_star"] > 0.6
    assert shares["os_star"] + shares["unk_pooled"] > 1.1
    is_new = torch.from_numpy(made.truth >= KNOWN)
    new, known = prediction.novelty_score[is_new], prediction.novelty_score[~is_new]
    assert (new[:, None] > known).float().mean() > 0.85


@pytest.mark.parametrize("method", METHODS)
def test_a_seed_answers_the_same_twice(made: Made, method: str) -> None:
    few = Inputs(made.inputs.source, made.inputs.target[:60])
    short = TrainConfig(head_widths=(8,), pretrain_steps=3, round_steps=3, rounds=1)
    first, second = (predict(method, few, short) for _ in range(2))
    torch.testing.assert_close(first.novelty_score, second.novelty_score)
    assert first.labels.tolist() == second.labels.tolist()


def test_all_train_as_many_steps_as_scda() -> None:
    assert total_steps(CONFIG, KNOWN, 100) == 150 + 2 * 30
    one_pass = TrainConfig(pretrain_steps=10, round_length="target", rounds=2, batch_size=32)
    assert total_steps(one_pass, KNOWN, 100) == 10 + 2 * 3


@pytest.mark.parametrize("method", METHODS)
def test_a_method_takes_that_many_steps(
    made: Made, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[int] = []

    def counting(take: Callable[..., Any]) -> Callable[..., None]:
        def counted(*given: Any) -> None:
            steps.append(1)
            take(*given)

        return counted

    for optimizer in (torch.optim.SGD, torch.optim.Adam):
        monkeypatch.setattr(optimizer, "step", counting(optimizer.step))
    # 17 is no multiple of PGL's nine later rounds, nor of SHOT's 15 labellings.
    config = TrainConfig(head_widths=(8,), pretrain_steps=5, round_steps=17, rounds=1)
    predict(method, made.inputs, config)
    assert len(steps) == 22


def test_what_is_rejected_is_divided_by_silhouette() -> None:
    rng = np.random.default_rng(0)
    truth = np.repeat(np.arange(4), 20)
    points = (6 * np.eye(4)[truth] + rng.normal(0, 0.3, (80, 4))).astype(np.float32)
    labels = torch.from_numpy(np.where(truth == 0, 0, UNKNOWN))
    prediction = Prediction(labels, torch.zeros(80), torch.from_numpy(points))
    predicted, confidence = divided(prediction, points, 1, CONFIG)
    assert set(predicted) == {0, 1, 2, 3}
    assert all(len(set(predicted[truth == label])) == 1 for label in range(4))
    members = np.flatnonzero(truth == 3)
    from_centre = np.linalg.norm(points[members] - points[members].mean(axis=0), axis=1)
    assert confidence[members].argmax() == from_centre.argmin()


def test_many_values_of_k_are_a_grid_and_many_images_a_sample(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert baselines.counts_of_k(48) == list(range(2, 49))
    grid = baselines.counts_of_k(649)
    assert grid[:4] == [2, 3, 4, 5]
    assert (len(grid) <= 48, grid[-1]) == (True, 649)
    coarse = baselines.counts_of_k(40, 16)
    assert (len(coarse) <= 16, coarse[:3], coarse[-1]) == (True, [2, 3, 4], 40)
    monkeypatch.setattr(baselines, "_MOST_POINTS", 30)
    rng = np.random.default_rng(0)
    truth = np.repeat(np.arange(4), 20)
    points = (6 * np.eye(4)[truth] + rng.normal(0, 0.3, (80, 4))).astype(np.float32)
    prediction = Prediction(torch.full((80,), UNKNOWN), torch.zeros(80), torch.from_numpy(points))
    predicted, _ = divided(prediction, points, 1, CONFIG)
    assert [len(set(predicted[truth == label])) for label in range(4)] == [1, 1, 1, 1]
    assert len(set(predicted)) == 4


def test_who_rejects_nothing_finds_nothing() -> None:
    prediction = Prediction(torch.zeros(4, dtype=torch.int64), torch.zeros(4), torch.zeros(4, 2))
    predicted, _ = divided(prediction, np.zeros((4, 2), np.float32), 1, CONFIG)
    assert predicted.tolist() == [0, 0, 0, 0]


def test_a_record_has_what_the_table_shows(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    truth = torch.from_numpy(made.truth)
    perfect = Prediction(
        torch.where(truth < KNOWN, truth, UNKNOWN), (truth >= KNOWN).float(), made.inputs.target
    )
    monkeypatch.setitem(baselines.METHODS, "perfect", lambda *unused: perfect)
    target = tuple(Path(str(row)) for row in range(len(made.truth)))
    lists = Lists((), (), target, tuple(made.truth.tolist()), KNOWN)
    record = measure_other(Run({"method": "perfect"}, lists, CONFIG), made.inputs)
    assert (record["os"], record["hos"], record["auroc"]) == (100.0, 100.0, 100.0)
    assert (record["k_star"], record["k_true"], record["acc_novel"]) == (4, 4, 100.0)
    assert record["status"] == ["ok"]
    at_most_4 = Run({"method": "perfect"}, lists, replace(CONFIG, k_max=4))
    assert measure_other(at_most_4, made.inputs)["status"] == ["k at its bound"]


def test_unit_rows_start_every_step_at_length_1() -> None:
    prototypes = Prototypes(4, 3, temperature=1)
    seen: list[torch.Tensor] = []

    def loss() -> torch.Tensor:
        seen.append(prototypes.weight.detach().norm(dim=1))
        return F.cross_entropy(prototypes(torch.eye(4)[:3]), torch.arange(3))

    minimise([prototypes], loss, 20, TrainConfig(lr=0.5), unit=[prototypes.weight])
    assert len(seen) == 20
    torch.testing.assert_close(torch.stack(seen), torch.ones(20, 3))
    assert (prototypes(torch.eye(4)[:3]).argmax(dim=1) == torch.arange(3)).all()


def test_only_the_hardest_negative_counts() -> None:
    logits = torch.tensor([[2.0, 1.0, -3.0]])
    wanted = -F.logsigmoid(torch.tensor(2.0)) - F.logsigmoid(torch.tensor(-1.0))
    torch.testing.assert_close(ovanet.hard_negatives(logits, torch.tensor([0])), wanted)


def test_open_entropy_is_largest_at_a_half() -> None:
    half, sure = (ovanet.open_entropy(torch.full((2, 3), logit)) for logit in (0.0, 20.0))
    assert half.item() == pytest.approx(np.log(2))
    assert sure.item() == pytest.approx(0, abs=1e-6)


def test_no_image_is_its_own_neighbour() -> None:
    memory = torch.eye(3)
    alone = dance.neighbourhood(memory[:1], torch.tensor([0]), memory, torch.eye(3)[1:2])
    # Two other images and a prototype, all at a cosine of 0.
    assert alone.item() == pytest.approx(np.log(3), rel=1e-5)


def test_neighbours_of_the_same_batch_are_live() -> None:
    features = torch.eye(3)[:2].requires_grad_()
    stale = -torch.ones(4, 3) / np.sqrt(3)
    dance.neighbourhood(features, torch.tensor([0, 3]), stale, torch.eye(3)[2:]).backward()
    assert features.grad is not None
    # The memory pulls alike in every direction; only the other live image tells two apart.
    assert (features.grad[0, 0] - features.grad[0, 1]).abs() > 1e-4


def test_entropies_near_the_middle_are_left_alone() -> None:
    away = dance.away_from(1.0, torch.tensor([1.2, 2.0, 0.1]))
    assert away.item() == pytest.approx(-(1.0 + 0.9) / 3)


def test_information_is_best_where_every_image_is_sure_and_classes_are_even() -> None:
    sure = torch.tensor([[30.0, 0.0], [0.0, 30.0]])
    both, first = torch.tensor([True, True]), torch.tensor([True, False])
    assert shot.information(sure, both).item() == pytest.approx(-np.log(2), rel=1e-5)
    assert shot.information(sure[:1], both[:1]).item() == pytest.approx(0, abs=1e-5)
    # An unsure image that counts as unknown is in the mean prediction alone.
    unsure = torch.tensor([[30.0, 0.0], [0.0, 0.0]])
    mean = torch.tensor([0.75, 0.25])
    wanted = (mean * mean.log()).sum().item()
    assert shot.information(unsure, first).item() == pytest.approx(wanted, rel=1e-5)


def test_two_entropies_are_parted_between() -> None:
    assert shot.halves(torch.tensor([0.1, 0.3, 1.9, 2.1]), 0) == pytest.approx(1.1)


def test_a_class_that_no_known_image_is_given_has_no_centroid() -> None:
    class Fixed(torch.nn.Module):
        def forward(self, features: torch.Tensor) -> torch.Tensor:
            logits: torch.Tensor = 8 * features[:, :3]
            return logits

    # Two sure images of class 0, one unsure one that leans to class 1; class 2 has none.
    images = torch.tensor([[1.0, 0.0, 0.0], [1.0, 0.1, 0.0], [0.1, 0.11, 0.1]])
    weight = torch.nn.Parameter(torch.ones(1))  # says where the networks are
    head = torch.nn.Identity()
    head.register_parameter("weight", weight)
    networks = Networks(head, Fixed())
    labels, known = shot.pseudo_labels(networks, images, 0)
    assert known.tolist() == [True, True, False]
    assert labels.tolist() == [0, 0, 0]


def test_edges_are_learnt_between_labelled_images_alone() -> None:
    labels = torch.tensor([0, 0, UNKNOWN, pgl.NOT_YET])
    right = torch.full((4, 4), -20.0)
    right[:2, :2] = right[2, 2] = 20
    right[3] = right[:, 3] = 99  # of an image without a label, which nobody looks at
    assert pgl.edge_loss(right, labels).item() == pytest.approx(0, abs=1e-6)
    right[0, 2] = 20
    assert pgl.edge_loss(right, labels).item() == pytest.approx(20 / 9, rel=1e-4)


def test_sure_images_weigh_less_in_the_focal_loss() -> None:
    logits = torch.tensor([[1.0, 0.0]])
    share = logits.softmax(dim=1)[0, 0]
    wanted = -((1 - share) ** 2) * share.log()
    torch.testing.assert_close(pgl.focal(logits, torch.tensor([0])), wanted)


def test_rounds_label_the_surest_known_and_the_least_sure_unknown_for_good() -> None:
    labels = torch.full((10,), pgl.NOT_YET)
    sureness = torch.linspace(0.95, 0.55, 10)
    probs = torch.stack([sureness, 1 - sureness], dim=1)
    pgl.label_more(labels, probs, 0.5)
    not_yet = [pgl.NOT_YET] * 5
    assert labels.tolist() == [0, 0, 0, *not_yet, UNKNOWN, UNKNOWN]
    pgl.label_more(labels, probs.flip(1), 1.0)  # the classes have changed places
    assert labels.tolist() == [1, 1, 1, 1, 1, 1, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN]


def test_the_surest_of_both_kinds_teach_what_is_known() -> None:
    similarity = torch.tensor([0.05, 0.1, 0.5, 0.55, 0.9, 0.95])
    features = torch.tensor([[-2.0], [-1.8], [1.5], [-1.5], [1.9], [2.0]])
    weights = sta.knownness(features, similarity, 0)
    assert (weights > 0.5).tolist() == [False, False, True, False, True, True]


def test_transport_knows_images_near_a_prototype_and_no_other() -> None:
    cosines = torch.tensor([[0.9, 0.1], [0.9, 0.0], [0.1, 0.9], [0.2, 0.1], [0.1, 0.1]])
    even = uniot.Classes(torch.tensor([0.5, 0.5]), torch.ones(2, dtype=torch.float64))
    plan = uniot.unbalanced_transport(cosines, even, 4)
    assert plan.known.tolist() == [True, True, True, False]
    assert plan.classes[:3].tolist() == [0, 0, 1]
    assert plan.marginal.sum().item() == pytest.approx(1)
    again = uniot.unbalanced_transport(cosines, uniot.Classes(even.marginal, plan.scaling), 4)
    torch.testing.assert_close(again.mass, plan.mass, atol=1e-3, rtol=0.02)


def test_balanced_transport_fills_every_column() -> None:
    shares = uniot.balanced_transport(torch.rand(60, 4), sweeps=50)
    torch.testing.assert_close(shares.sum(dim=1), torch.ones(60))
    torch.testing.assert_close(shares.sum(dim=0), torch.full((4,), 15.0), atol=0.1, rtol=0)


def test_spliced_features_lose_their_largest_and_smallest_values() -> None:
    features = torch.arange(20.0).flip(0)[None]
    mixed = tim.spliced(features, torch.full((1, 20), -1.0))
    replaced = (mixed == -1).nonzero()[:, 1].tolist()
    assert replaced == [0, 1, 2, 18, 19]  # 15% and 10% of 20
    assert mixed[0, 3:18].tolist() == features[0, 3:18].tolist()


def test_negatives_mix_two_classes_and_have_labels_behind_the_known_ones() -> None:
    labels = torch.arange(3).repeat_interleave(4)
    # A class has its own value in every feature, so what is spliced in tells its class.
    source = Labelled(labels[:, None].float().expand(-1, 20).contiguous(), labels)
    negatives = tim.negative_classes(source, 6, 0, torch.Generator().manual_seed(0))
    assert len(negatives.features) == 6 * 20
    assert all(len(row.unique()) == 2 for row in negatives.features)
    assert negatives.labels.unique().tolist() == list(range(3, 9))


def test_inheritance_pushes_to_the_side_of_the_weight_and_to_one_class_of_it() -> None:
    known, negative = torch.tensor([[9.0, -9.0, -9.0, -9.0]]), torch.tensor([[-9.0, -9, 9, -9]])
    one, zero = torch.ones(1), torch.zeros(1)
    assert tim.inheritance(known, one, 2).item() == pytest.approx(0, abs=1e-4)
    assert tim.inheritance(negative, zero, 2).item() == pytest.approx(0, abs=1e-4)
    assert tim.inheritance(negative, one, 2).item() > 10
    even = torch.tensor([[9.0, 9.0, -9.0, -9.0]])
    assert tim.inheritance(even, one, 2).item() == pytest.approx(0.1 * np.log(2), rel=1e-3)
