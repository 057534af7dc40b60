"""The device of a run, and the number format in which its networks compute."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from scda.adapt.config import TrainConfig
from scda.models.errors import UsageError

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def select_device(config: TrainConfig) -> torch.device:
    """Return the device of a run; `auto` selects a GPU if torch finds one.

    Args:
        config: Configuration of the run.

    Raises:
        UsageError: If the device is missing, or does not support the precision.
    """
    has_gpu = torch.cuda.is_available()
    if config.device == "cuda" and not has_gpu:
        raise UsageError("device is cuda, but torch finds no GPU; use --device cpu")
    device = torch.device("cuda" if has_gpu and config.device != "cpu" else "cpu")
    if device.type == "cpu" and config.precision == "fp16":
        raise UsageError("fp16 is not supported on a CPU; use --precision bf16")
    return device


@contextmanager
def memory_errors() -> Iterator[None]:
    """Say what to do where a GPU has too little memory.

    Raises:
        UsageError: In place of the error of torch.
    """
    try:
        yield
    except torch.OutOfMemoryError as error:
        reason = str(error).partition(". GPU ")[0]  # what follows lists all that is allocated
        raise UsageError(
            f"{reason}; expected room for a batch: use a smaller --batch-size, or --device cpu"
        ) from None
