import torch

from scda.models.networks.network import Tempered


def test_a_temperature_changes_the_confidence_and_not_the_order() -> None:
    logits = torch.randn(200, 4, generator=torch.Generator().manual_seed(0)) * 4
    found = Tempered(torch.tensor([1.0, 1.0, 5.0, 20.0]))(logits)
    assert torch.equal(found.argsort(dim=1), logits.argsort(dim=1))
    before, after = (values.softmax(dim=1).amax(dim=1) for values in (logits, found))
    last = logits.argmax(dim=1) == 3
    assert after[last].mean() < 0.6 * before[last].mean()
    assert (after <= before + 1e-6).all()


def test_temperatures_of_1_change_nothing() -> None:
    logits = torch.randn(50, 3, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(Tempered(torch.ones(3))(logits), logits)


def test_confidence_does_not_jump_where_the_most_probable_class_changes() -> None:
    """Else, the rounding of another provider would decide about it."""
    tempered = Tempered(torch.tensor([1.0, 30.0]))
    near = torch.tensor([[0.0, 1e-4], [1e-4, 0.0]])
    left, right = tempered(near + torch.tensor([3.0, 3.0])).softmax(dim=1).amax(dim=1)
    assert abs(left - right) < 1e-4
