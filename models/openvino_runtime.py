"""OpenVINO as another runtime of the same ONNX file: the provider `openvino`.

It runs on CPUs alone here, in bfloat16 where the CPU computes with it, which is about twice as fast
as float32 and differs by some hundredths of a probability.
"""

import sys
from pathlib import Path
from queue import SimpleQueue
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from scda.models.errors import GateError
from scda.models.extras import needs_extra
from scda.models.preprocess import Pixels

_TELEMETRY = "openvino_telemetry"


class OpenVino:
    """A model that OpenVINO runs; `precision` is the one that it computes in."""

    def __init__(self, model: Path | BinaryIO, *, threads: int, at_once: int) -> None:
        """Load a model file.

        Args:
            model: ONNX file, or an open one.
            threads: Number of threads of one call.
            at_once: Number of calls that may run at the same time, each on its own threads.

        Raises:
            UsageError: If OpenVINO is not installed.
            GateError: If the file is not a model.
        """
        core = _library().Core()
        native = core.get_property("CPU", "OPTIMIZATION_CAPABILITIES")
        self.precision = "bf16" if "BF16" in native else "fp32"
        options = {
            "INFERENCE_PRECISION_HINT": {"bf16": "bf16", "fp32": "f32"}[self.precision],
            "INFERENCE_NUM_THREADS": threads * at_once,
            "NUM_STREAMS": at_once,
            # Each process would pin its threads to the same first CPUs.
            "ENABLE_CPU_PINNING": False,
        }
        try:
            content = model.read_bytes() if isinstance(model, Path) else model.read()
            self._compiled = core.compile_model(core.read_model(content, b""), "CPU", options)
        except Exception as error:  # OpenVINO raises RuntimeError for whatever it does not know
            name = Path(getattr(model, "name", "model")).name
            reason = str(error).strip().splitlines()[-1]
            raise GateError(f"{name}: OpenVINO cannot run it: {reason}") from None
        # A request serves one call at a time.
        self._idle: SimpleQueue[Any] = SimpleQueue()
        for _ in range(at_once):
            self._idle.put(self._compiled.create_infer_request())

    @property
    def width(self) -> int:
        """The length D of a feature vector (the last output's)."""
        return int(self._compiled.outputs[-1].partial_shape[-1].get_length())

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape (H, W, 3) of an input image."""
        return tuple(side.get_length() for side in list(self._compiled.inputs[0].partial_shape)[1:])

    def run(self, pixels: Pixels) -> list[NDArray[np.float32]]:
        """Return the model's outputs for (N, H, W, 3) uint8 images; waits for an idle request."""
        request = self._idle.get()
        try:
            request.infer([np.ascontiguousarray(pixels)])
            # The request's memory is overwritten by its next call.
            return [np.array(output.data) for output in request.output_tensors]
        finally:
            self._idle.put(request)


def _library() -> Any:
    """Return the module `openvino`, imported without the package by which its tools report usage.

    Running a model reports nothing; the tools that do are imported with it, and use a stub where
    that package is missing.
    """
    missing = object()
    before = sys.modules.get(_TELEMETRY, missing)
    sys.modules[_TELEMETRY] = None  # type: ignore[assignment]  # makes its import fail
    try:
        with needs_extra("openvino"):
            import openvino
    finally:
        if before is missing:
            del sys.modules[_TELEMETRY]
        else:
            sys.modules[_TELEMETRY] = before  # type: ignore[assignment]
    return openvino
