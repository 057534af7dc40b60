"""ONNX Runtime without its telemetry; every other module imports `ort` from here.

Unless ORT_DISABLE_TELEMETRY is set before the import, onnxruntime writes a device id into the
user's cache folder and looks up host names.
"""

import os

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

import onnxruntime as ort  # noqa: E402: onnxruntime reads the variable when it is imported

__all__ = ["ort"]
