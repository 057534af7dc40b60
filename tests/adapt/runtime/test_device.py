import pytest
import torch

from scda.adapt.config import TrainConfig
from scda.adapt.runtime.device import memory_errors, select_device
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


def test_a_gpu_with_too_little_memory_is_told_in_one_line() -> None:
    told = "CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total capacity of 4.00 GiB"
    line = (
        "CUDA out of memory. Tried to allocate 20.00 MiB; expected room for a batch: "
        "use a smaller --batch-size, or --device cpu"
    )
    with pytest.raises(UsageError) as raised, memory_errors():
        raise torch.OutOfMemoryError(told)
    assert str(raised.value) == line
