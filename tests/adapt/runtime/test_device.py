import pytest

from scda.adapt.config import TrainConfig
from scda.adapt.runtime.device import chosen_device
from scda.models.errors import UsageError


def test_without_a_gpu_auto_is_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    for device in ("auto", "cpu"):
        assert chosen_device(TrainConfig(device=device, precision="bf16")).type == "cpu"


def test_with_a_gpu_auto_takes_it_and_cpu_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    assert chosen_device(TrainConfig(device="auto", precision="fp16")).type == "cuda"
    assert chosen_device(TrainConfig(device="cuda")).type == "cuda"
    assert chosen_device(TrainConfig(device="cpu")).type == "cpu"


def test_what_the_machine_cannot_do_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(UsageError, match="device cuda asked for, torch sees no GPU"):
        chosen_device(TrainConfig(device="cuda"))
    with pytest.raises(UsageError, match="precision fp16 asked for, which the CPU has not"):
        chosen_device(TrainConfig(precision="fp16"))
