"""The session that runs an ONNX file: its actual provider and its number of threads."""

import ctypes
import io
import logging
import threading
from contextlib import redirect_stdout
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from scda.models.cpus import usable_cpus
from scda.models.errors import GateError, UsageError
from scda.models.onnx_runtime import ort
from scda.models.openvino_runtime import OpenVino
from scda.models.preprocess import Pixels

log = logging.getLogger(__name__)

PROVIDERS = {"cpu": "CPUExecutionProvider", "cuda": "CUDAExecutionProvider"}  # ONNX Runtime's
OPENVINO = "openvino"
_PRINTING = threading.Lock()
_ERRORS_ONLY = 3  # ONNX Runtime's log severity


class Session:
    """One loaded model; `provider` is the provider that runs it, `precision` its arithmetic."""

    _session: ort.InferenceSession
    _openvino: OpenVino | None = None

    def __init__(
        self,
        model: Path | BinaryIO,
        *,
        provider: str = "auto",
        gpu: int = 0,
        threads: int = 0,
        spinning: bool = True,
    ) -> None:
        """Load a model file.

        Args:
            model: ONNX file, or an open one.
            provider: `auto`, `cpu` or `cuda` of ONNX Runtime, or `openvino`, on the CPU.
            gpu: Index of the GPU, from 0.
            threads: Number of threads per operator; 0 uses all available CPUs, and more than
                these count as all.
            spinning: Whether idle threads spin: faster in a batch job, wasteful in a service.

        Raises:
            UsageError: If the provider is unknown or not available, or `threads` is negative.
            GateError: If the file is not a model.
        """
        if threads < 0:
            raise UsageError(f"threads is {threads}; expected 0 or more")
        check_provider(provider)
        cpus = usable_cpus()
        self.threads, self.precision = min(threads or cpus, cpus), "fp32"
        if provider == OPENVINO:
            self.provider = provider
            self._openvino = OpenVino(model, threads=self.threads, at_once=self.at_once)
            self.precision = self._openvino.precision
            return
        options = ort.SessionOptions()
        options.log_severity_level = _ERRORS_ONLY
        options.intra_op_num_threads = self.threads
        options.inter_op_num_threads = 1
        options.add_session_config_entry("session.intra_op.allow_spinning", str(int(spinning)))
        # ONNX Runtime prints what it misses to standard output, which may be the rows of `label`.
        # The output is that of the whole process, so one session after the other takes it.
        with _PRINTING, redirect_stdout(io.StringIO()) as printed:
            providers = _providers(provider, gpu)
            self._session = _load(model, options, providers)
        self.provider = self._session.get_providers()[0].removesuffix("ExecutionProvider").lower()
        # After an error of the GPU, it would go over to the CPU, and print so.
        self._session.disable_fallback()
        if provider == "cuda" and self.provider != "cuda":
            raise UsageError(
                f"provider cuda is not available: the session runs on {self.provider}"
                f"{_because(printed)}"
            )
        if provider == "auto" and self.provider == "cpu" and len(providers) > 1:
            why = _because(printed)
            log.warning("found a GPU that ONNX Runtime cannot use; running on the CPU%s", why)

    @property
    def width(self) -> int:
        """The length D of a feature vector (the last output's)."""
        if self._openvino:
            return self._openvino.width
        return int(self._session.get_outputs()[-1].shape[-1])

    @property
    def at_once(self) -> int:
        """Number of concurrent calls of `run` that keep the machine busy; 1 on a GPU."""
        return max(1, usable_cpus() // self.threads) if self.provider != "cuda" else 1

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape (H, W, 3) of an input image."""
        if self._openvino:
            return self._openvino.shape
        return tuple(self._session.get_inputs()[0].shape[1:])

    def run(self, pixels: Pixels) -> list[NDArray[np.float32]]:
        """Return the model's outputs for (N, H, W, 3) uint8 images."""
        if self._openvino:
            return self._openvino.run(pixels)
        name = self._session.get_inputs()[0].name
        # CUDA allocates memory and plans for every new N.
        fed = padded(pixels) if self.provider == "cuda" else pixels
        outputs = self._session.run(None, {name: fed})
        return [np.asarray(output)[: len(pixels)] for output in outputs]


def check_provider(name: str) -> None:
    """Check the name of a provider.

    Raises:
        UsageError: If there is no such provider.
    """
    known = ("auto", *PROVIDERS, OPENVINO)
    if name not in known:
        raise UsageError(f"provider {name!r}, expected {', '.join(known[:-1])} or {known[-1]}")


def padded(pixels: Pixels) -> Pixels:
    """Return (N, ...) images, padded with black ones to the next power of two."""
    more = (1 << (len(pixels) - 1).bit_length()) - len(pixels)
    return np.concatenate([pixels, np.zeros((more, *pixels.shape[1:]), pixels.dtype)])


def has_driver() -> bool:
    """Return whether NVIDIA's driver is installed, as far as the system's loader knows."""
    try:
        # ctypes.util.find_library asks the compiler, which needs a folder that can be written.
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    return True


def _load(
    model: Path | BinaryIO,
    options: ort.SessionOptions,
    providers: list[str | tuple[str, dict[str, str]]],
) -> ort.InferenceSession:
    try:
        source = str(model) if isinstance(model, Path) else model.read()
        return ort.InferenceSession(source, options, providers=providers)
    except Exception as error:  # ONNX Runtime has no common class for "not a model"
        name = Path(getattr(model, "name", "model")).name
        raise GateError(f"{name}: not an ONNX model: {str(error).splitlines()[0]}") from None


def _because(printed: io.StringIO) -> str:
    """Return what ONNX Runtime printed first about a failure, after a colon."""
    lines = [line for line in printed.getvalue().splitlines() if not line.startswith("***")]
    return f": {lines[0]}" if lines else ""


def _providers(name: str, gpu: int) -> list[str | tuple[str, dict[str, str]]]:
    built_in = PROVIDERS["cuda"] in ort.get_available_providers()
    # A GPU build lists CUDA on every machine; without a driver it only logs errors.
    present = built_in and has_driver()
    if name == "cuda" and not present:
        raise UsageError(
            "provider cuda is not available on this machine or in this onnxruntime; "
            "use --provider cpu"
        )
    if name == "cpu" or not present:
        return [PROVIDERS["cpu"]]
    ort.preload_dlls()
    return [(PROVIDERS["cuda"], {"device_id": str(gpu)}), PROVIDERS["cpu"]]
