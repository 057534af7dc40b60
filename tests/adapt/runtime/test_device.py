import pytest

from scda.adapt.config import TrainConfig
from scda.adapt.runtime.device import select_device
from scda.models.errors import UsageError


def test_without_a_gpu_auto_is_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    for device in ("auto", "cpu"):
        assert select_device(TrainConfig(device=device, precision="bf16")).type == "cpu"


def test_with_a_gpu_auto_takes_it_and_cpu_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    assert select_device(TrainConfig(device="auto", precision="fp16")).type == "cuda"
    assert select_device(TrainConfig(device="cuda")).type == "cuda"
    assert select_device(TrainConfig(device="cpu")).type == "cpu"


def test_what_the_machine_cannot_do_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(UsageError, match="device is cuda, but torch finds no GPU"):
        select_device(TrainConfig(device="cuda"))
    with pytest.raises(UsageError, match="fp16 is not supported on a CPU"):
        select_device(TrainConfig(precision="fp16"))
