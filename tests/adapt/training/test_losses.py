import math

import pytest
import torch
from torch import Generator, Tensor, nn

from scda.adapt.training.losses import (
    adversarial,
    class_confusion,
    class_correlation,
    reverse_gradient,
)

Rows = list[list[float]]
FORMS = ("matrix", "class", "sample")


def random_logits(images: int, outputs: int, *, scale: float = 2.0, seed: int = 0) -> Tensor:
    generator = Generator().manual_seed(seed)
    return scale * torch.randn(images, outputs, generator=generator, dtype=torch.float64)


def softmax(row: list[float]) -> list[float]:
    return [math.exp(value) / sum(map(math.exp, row)) for value in row]


def entropy_by_hand(row: list[float]) -> float:
    return -sum(share * math.log(share) for share in softmax(row))


def correlation_by_hand(logits: Rows) -> Rows:
    """Eq. 1 with the weights of mean 1, before its rows are normalised."""
    probabilities = [softmax(row) for row in logits]
    certainty = [1 + math.exp(-entropy_by_hand(row)) for row in logits]
    weights = [len(logits) * value / sum(certainty) for value in certainty]
    outputs = range(len(logits[0]))
    return [
        [
            sum(w * row[j] * row[k] for w, row in zip(weights, probabilities, strict=True))
            for k in outputs
        ]
        for j in outputs
    ]


def normalised_by_hand(correlation: Rows) -> Rows:
    return [[value / sum(row) for value in row] for row in correlation]


def confusion_by_hand(shares: Rows, num_classes: int) -> float:
    total = 0.0
    for j in range(num_classes):
        for k in range(num_classes):
            if k != j:
                total += shares[j][k]
    return total / num_classes


def from_a_half_by_hand(share: float) -> float:
    return -0.5 * math.log(share) - 0.5 * math.log(1 - share)


def adversarial_by_hand(logits: Rows, form: str) -> float:
    known = len(logits[0]) - 1
    if form == "sample":
        unknown = [softmax(row)[known] for row in logits]
        return sum(from_a_half_by_hand(share) for share in unknown) / len(logits)
    shares = normalised_by_hand(correlation_by_hand(logits))
    if form == "class":
        return sum(from_a_half_by_hand(shares[j][known]) for j in range(known)) / known
    return from_a_half_by_hand(sum(shares[j][known] for j in range(known)) / known)


def gradient(loss: Tensor, of: Tensor) -> Tensor:
    (result,) = torch.autograd.grad(loss, of)
    return result


def test_correlation_is_equation_1_with_rows_that_sum_to_1() -> None:
    logits = random_logits(7, 4)
    expected = normalised_by_hand(correlation_by_hand(logits.tolist()))
    torch.testing.assert_close(class_correlation(logits), torch.tensor(expected).double())


def test_a_confident_image_counts_for_more() -> None:
    logits = torch.tensor([[9.0, 0.0], [0.2, 0.0]], dtype=torch.float64)
    shares = class_correlation(logits)
    unweighted = normalised_by_hand(
        [
            [sum(row[j] * row[k] for row in map(softmax, logits.tolist())) for k in range(2)]
            for j in range(2)
        ]
    )
    assert shares[0, 0] > unweighted[0][0]


def test_temperature_divides_the_logits() -> None:
    logits = random_logits(6, 3)
    torch.testing.assert_close(
        class_correlation(logits, temperature=2.5), class_correlation(logits / 2.5)
    )


def test_rows_are_normalised_and_not_columns() -> None:
    logits = random_logits(32, 11, scale=1.0)
    raw = torch.tensor(correlation_by_hand(logits.tolist())).double()
    trap = raw / raw.sum(dim=1)  # as the widely copied code has it: without keepdim
    shares = class_correlation(logits)
    torch.testing.assert_close(shares.sum(dim=1), torch.ones(11, dtype=torch.float64))
    torch.testing.assert_close(trap, shares.T)
    assert (shares[:-1, -1] - trap[:-1, -1]).abs().max() > 1e-3  # what L_adv reads
    # The confusion over all classes cannot tell the two apart, so no test of it would notice.
    torch.testing.assert_close(
        class_confusion(shares, num_classes=11), class_confusion(trap, num_classes=11)
    )


def test_certain_predictions_share_nothing() -> None:
    torch.testing.assert_close(class_correlation(50 * torch.eye(3)), torch.eye(3))


def test_renaming_classes_renames_the_matrix() -> None:
    logits, order = random_logits(8, 5), torch.tensor([2, 0, 4, 1, 3])
    expected = class_correlation(logits)[order][:, order]
    torch.testing.assert_close(class_correlation(logits[:, order]), expected)


def test_the_order_of_the_batch_changes_nothing() -> None:
    logits = random_logits(8, 5)
    torch.testing.assert_close(class_correlation(logits.flip(0)), class_correlation(logits))


def test_a_class_that_no_image_predicts_has_a_row_of_zeros() -> None:
    shares = class_correlation(torch.tensor([[1e6, 0.0, 0.0], [1e6, 0.0, 0.0]]))
    assert shares.tolist() == [[1, 0, 0], [0, 0, 0], [0, 0, 0]]


def test_no_gradient_flows_through_the_certainty() -> None:
    logits = random_logits(5, 3).requires_grad_()
    probabilities = logits.softmax(dim=1)
    certainty = torch.tensor([1 + math.exp(-entropy_by_hand(row)) for row in logits.tolist()])
    shared = (probabilities * certainty.double()[:, None]).T @ probabilities
    expected = (shared / shared.sum(dim=1, keepdim=True)).diagonal().sum()
    actual = class_correlation(logits).diagonal().sum()
    torch.testing.assert_close(gradient(actual, logits), gradient(expected, logits))


@pytest.mark.parametrize("shape", [(3,), (0, 3), (2, 3, 4)])
def test_wrong_shape_is_named(shape: tuple[int, ...]) -> None:
    logits = torch.zeros(shape)
    with pytest.raises(ValueError, match=r"expected \(N, C\) with N > 0"):
        class_correlation(logits)
    for form in FORMS:
        with pytest.raises(ValueError, match=r"expected \(N, C\) with N > 0"):
            adversarial(logits, form=form)


def test_known_confusion_is_equation_4() -> None:
    logits = random_logits(9, 5)  # 4 known classes and `unknown`
    shares = normalised_by_hand(correlation_by_hand(logits.tolist()))  # over all 5 outputs
    actual = class_confusion(class_correlation(logits), num_classes=4)
    assert actual.item() == pytest.approx(confusion_by_hand(shares, 4))


def test_known_confusion_does_not_punish_what_goes_to_unknown() -> None:
    shares = torch.tensor([[0.5, 0.0, 0.5], [0.0, 0.5, 0.5], [0.4, 0.4, 0.2]])
    assert class_confusion(shares, num_classes=2).item() == 0


def test_target_confusion_is_equation_9() -> None:
    logits = random_logits(9, 6)
    shares = normalised_by_hand(correlation_by_hand(logits.tolist()))
    actual = class_confusion(class_correlation(logits), num_classes=6)
    assert actual.item() == pytest.approx(confusion_by_hand(shares, 6))


def test_equal_predictions_are_as_confused_as_can_be() -> None:
    shares = class_correlation(torch.zeros(4, 5))
    assert class_confusion(shares, num_classes=5).item() == pytest.approx(4 / 5)


def test_present_rows_leave_out_classes_without_mass() -> None:
    shares = torch.tensor([[0.6, 0.4, 0.0], [0.2, 0.8, 0.0], [0.0, 0.0, 0.0]])
    assert class_confusion(shares, num_classes=3).item() == pytest.approx(0.6 / 3)
    assert class_confusion(shares, num_classes=3, rows="present").item() == pytest.approx(0.6 / 2)


def test_present_counts_rows_by_all_their_mass_and_not_by_the_known_part() -> None:
    shares = torch.tensor([[0.1, 0.1, 0.8], [0.0, 0.0, 1.0], [0.0, 0.0, 0.0]])
    assert class_confusion(shares, num_classes=2, rows="present").item() == pytest.approx(0.1 / 2)


def test_all_and_present_agree_where_every_class_has_mass() -> None:
    shares = class_correlation(random_logits(9, 6))
    torch.testing.assert_close(
        class_confusion(shares, num_classes=6, rows="present"),
        class_confusion(shares, num_classes=6, rows="all"),
    )


def test_no_mass_at_all_is_no_confusion() -> None:
    assert class_confusion(torch.zeros(3, 3), num_classes=3, rows="present").item() == 0


def test_unknown_rows_are_refused() -> None:
    with pytest.raises(ValueError, match="rows is 'some'; expected all or present"):
        class_confusion(torch.eye(3), num_classes=3, rows="some")


@pytest.mark.parametrize("form", FORMS)
def test_adversarial_is_equation_2_in_three_readings(form: str) -> None:
    logits = random_logits(9, 5)
    expected = adversarial_by_hand(logits.tolist(), form)
    assert adversarial(logits, form=form).item() == pytest.approx(expected)


def test_the_three_readings_differ() -> None:
    logits = random_logits(9, 5)
    values = {round(adversarial(logits, form=form).item(), 6) for form in FORMS}
    assert len(values) == 3


@pytest.mark.parametrize("form", ["matrix", "class"])
def test_adversarial_reads_the_shares_of_the_correlation(form: str) -> None:
    logits = random_logits(9, 5)
    given = class_correlation(logits, temperature=2)[:-1, -1]
    share = given.mean() if form == "matrix" else given
    expected = (-(share.log() + (1 - share).log()) / 2).mean()
    torch.testing.assert_close(adversarial(logits, form=form, temperature=2), expected)


@pytest.mark.parametrize("form", FORMS)
def test_adversarial_is_least_at_a_half_where_it_is_log_2(form: str) -> None:
    half = torch.log(torch.tensor([[0.25, 0.25, 0.5]] * 4, dtype=torch.float64)).requires_grad_()
    loss = adversarial(half, form=form)
    assert loss.item() == pytest.approx(math.log(2))
    assert gradient(loss, half).abs().max() < 1e-12
    for seed in range(20):
        assert adversarial(random_logits(6, 4, seed=seed), form=form).item() > math.log(2)


@pytest.mark.parametrize("form", FORMS)
def test_adversarial_is_the_same_above_and_below_a_half(form: str) -> None:
    shares = torch.tensor([[0.7, 0.3], [0.3, 0.7]], dtype=torch.float64)
    low, high = (
        adversarial(torch.log(row)[None].expand(3, 2), form=form) for row in shares.unbind()
    )
    torch.testing.assert_close(low, high)


def test_adversarial_refuses_another_form() -> None:
    with pytest.raises(ValueError, match="form is 'osbp'; expected matrix, class or sample"):
        adversarial(torch.zeros(2, 3), form="osbp")


@pytest.mark.parametrize("scale", [1.0, 40.0, 100.0, 1e3, 1e6, 1e30])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_losses_and_gradients_are_finite_for_extreme_logits(
    scale: float, dtype: torch.dtype
) -> None:
    for seed in range(10):
        logits = random_logits(4, 6, scale=scale, seed=seed).to(dtype)
        logits[:, seed % 6] += seed % 3 * scale  # and where a class has all or none
        logits.requires_grad_()
        shares = class_correlation(logits)
        losses = [adversarial(logits, form=form) for form in FORMS]
        losses += [class_confusion(shares, num_classes=n, rows="present") for n in (5, 6)]
        for loss in losses:
            assert loss.isfinite()
            (slope,) = torch.autograd.grad(loss, logits, retain_graph=True)
            assert slope.isfinite().all()


@pytest.mark.parametrize("form", FORMS)
def test_a_lost_class_is_still_pulled_to_a_half(form: str) -> None:
    for sign in (1, -1):
        logits = torch.tensor([[0.0, 1.0, sign * 60.0]] * 3, requires_grad=True)
        slope = gradient(adversarial(logits, form=form), logits)[:, -1]
        assert (sign * slope > 0.1).all()


def test_reversal_changes_only_the_sign_of_the_gradient() -> None:
    features = torch.tensor([1.0, -2.0], requires_grad=True)
    reversed_features = reverse_gradient(features)
    torch.testing.assert_close(reversed_features, features)
    assert gradient((3 * reversed_features).sum(), features).tolist() == [-3, -3]


def test_one_backward_lets_c_minimise_what_f_maximises() -> None:
    torch.manual_seed(0)
    extractor, classifier = nn.Linear(4, 3).double(), nn.Linear(3, 5).double()
    images = random_logits(6, 4)

    def loss(*, reverse: bool) -> Tensor:
        features = extractor(images)
        return adversarial(
            classifier(reverse_gradient(features) if reverse else features), form="sample"
        )

    plain = torch.autograd.grad(loss(reverse=False), [extractor.weight, classifier.weight])
    played = torch.autograd.grad(loss(reverse=True), [extractor.weight, classifier.weight])
    torch.testing.assert_close(played[0], -plain[0])
    torch.testing.assert_close(played[1], plain[1])
    before = loss(reverse=False).item()
    with torch.no_grad():
        extractor.weight -= 0.01 * played[0]
    assert loss(reverse=False).item() > before
    with torch.no_grad():
        extractor.weight += 0.01 * played[0]
        classifier.weight -= 0.01 * played[1]
    assert loss(reverse=False).item() < before
