"""The device of a run, and the number format its networks compute in."""

import torch

from scda.adapt.config import TrainConfig
from scda.models.errors import UsageError

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def chosen_device(config: TrainConfig) -> torch.device:
    """Return where a run computes; `auto` takes a GPU where torch sees one.

    Raises:
        UsageError: If the device cannot be had, or cannot compute in the precision asked for.
    """
    there = torch.cuda.is_available()
    if config.device == "cuda" and not there:
        raise UsageError("device cuda asked for, torch sees no GPU; --device cpu")
    device = torch.device("cuda" if there and config.device != "cpu" else "cpu")
    if device.type == "cpu" and config.precision == "fp16":
        raise UsageError("precision fp16 asked for, which the CPU has not; --precision bf16")
    return device
