"""ONNX Runtime without its telemetry; every other module imports `ort` from here.

Its two packages, `onnxruntime` and `onnxruntime-gpu`, contain the same modules and overwrite each
other's files, so scda depends on neither by itself: the extra `gpu` or `cpu` chooses.
"""

import os
from types import ModuleType

from scda.models.errors import UsageError

# onnxruntime reads it when it is imported; without it, it writes a device id into the user's cache
# folder and looks up host names.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

try:
    import onnxruntime as ort
except ModuleNotFoundError as error:
    if error.name != "onnxruntime":
        raise
    raise UsageError(
        "ONNX Runtime is not installed; pip install 'scda[gpu]' (runs on GPUs and CPUs) "
        "or 'scda[cpu]' (250 MB smaller, CPUs only)"
    ) from None

__all__ = ["ort", "quantization"]


def quantization() -> ModuleType:
    """Return the module `onnxruntime.quantization`, which needs the package onnx."""
    from onnxruntime import quantization as tools

    found: ModuleType = tools
    return found
