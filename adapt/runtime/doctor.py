"""Check an installation; each problem is one line with what to do about it.

The check works without torch and with broken libraries, which it is meant to find.
"""

import io
import os
import platform
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from scda.models.cpus import usable_cpus
from scda.models.errors import GateError, ImageError, ScdaError, UsageError

BROKEN, UNREADABLE = GateError.exit_code, ImageError.exit_code  # exit codes of a problem
_PACKAGES = (
    *("scda", "onnxruntime", "onnxruntime-gpu", "faiss-cpu", "bentoml", "pillow", "numpy"),
    *("torch", "torchvision", "timm"),
)
_CODECS = {"jpg": "JPEG", "zlib": "PNG", "webp": "WebP", "avif": "AVIF", "libtiff": "TIFF"}
_CODECS |= {"jpg_2000": "JPEG 2000"}  # what Pillow calls a codec → the format
# A minimal ONNX model, the identity, to find out which provider a session gets.
_MODEL = bytes.fromhex(
    "08083a370a100a017812017922084964656e746974791201675a0f0a0178120a0a08080112040a02080162"
    "0f0a0179120a0a08080112040a02080142040a00100d"
)


@dataclass(frozen=True)
class Problem:
    """One line with what is wrong and what to do, and the exit code of the command."""

    message: str
    exit_code: int = BROKEN


@dataclass(frozen=True)
class Examination:
    """The facts about an installation by name, and its problems."""

    facts: dict[str, Any] = field(default_factory=dict)
    problems: tuple[Problem, ...] = ()

    @property
    def exit_code(self) -> int:
        """Exit code of the worst problem; 0 if there is none."""
        return max((problem.exit_code for problem in self.problems), default=0)

    def to_json(self) -> dict[str, Any]:
        """Return the facts and the problems as plain JSON values."""
        return {**self.facts, "problems": [problem.message for problem in self.problems]}


def examine(bundle: Path | None = None) -> Examination:
    """Examine packages, devices, threads, codecs and, if given, a bundle, and measure its speed."""
    parts = [_packages(), _cpus(), _gpus(), _provider(), _torch(), _codecs()]
    parts += [_bundle(bundle)] if bundle else []
    found = _merge(parts)
    if bundle and "model_id" in found.facts:
        found = _merge([found, _speed(bundle, gpu=found.facts["provider"] == "cuda")])
    return _merge([found, _idle_gpu(found.facts)])


def _merge(parts: Iterable[Examination]) -> Examination:
    facts: dict[str, Any] = {}
    problems: list[Problem] = []
    for part in parts:
        facts |= part.facts
        problems += part.problems
    return Examination(facts, tuple(problems))


def _packages() -> Examination:
    found = {name: _version(name) for name in _PACKAGES}
    clash = found["onnxruntime"] and found["onnxruntime-gpu"]
    what_to_do = "pip uninstall both, then pip install one of them"
    message = f"onnxruntime and onnxruntime-gpu overwrite each other's files; {what_to_do}"
    facts = {name: number or "not installed" for name, number in found.items()}
    facts |= {"python": platform.python_version(), "platform": platform.platform()}
    return Examination(facts, (Problem(message),) if clash else ())


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _cpus() -> Examination:
    facts = {"cpus_usable": usable_cpus(), "cpus_of_machine": os.cpu_count()}
    names = ("OMP_NUM_THREADS", "SCDA_THREADS")
    return Examination(facts | {name: os.environ.get(name, "not set") for name in names})


def _gpus() -> Examination:
    command = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    try:
        listed = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):  # without a driver, the program is missing
        return Examination({"gpus": []})
    return Examination({"gpus": listed.stdout.splitlines()})


def _provider() -> Examination:
    """Return the providers that ONNX Runtime lists and the one that a session actually gets."""
    try:
        from scda.models.onnx_runtime import ort
        from scda.models.session import Session

        offered = ort.get_available_providers()
        got = Session(io.BytesIO(_MODEL), threads=1).provider
    except UsageError as error:  # it is not installed
        return Examination({"provider": "none"}, (Problem(str(error)),))
    except Exception as error:  # whatever a broken installation raises
        message = f"onnxruntime does not work: {error}; pip install --force-reinstall it"
        return Examination({"provider": "none"}, (Problem(message),))
    return Examination({"providers_offered": offered, "provider": got})


def _torch() -> Examination:
    try:
        import torch
    except ImportError:  # training alone needs it
        return Examination()
    except Exception as error:
        message = f"torch does not work: {error}; pip install --force-reinstall torch"
        return Examination({}, (Problem(message),))
    return Examination({"torch_device": "cuda" if torch.cuda.is_available() else "cpu"})


def _idle_gpu(facts: dict[str, Any]) -> Examination:
    """Report an unused GPU: both libraries fall back to the CPU without a warning."""
    problems = []
    if facts["gpus"] and facts["provider"] == "cpu":
        offered = "CUDAExecutionProvider" in facts["providers_offered"]
        cure = "update the driver, or pip install 'onnxruntime-gpu[cuda,cudnn]'"
        cure = cure if offered else "pip uninstall onnxruntime, then pip install onnxruntime-gpu"
        problems.append(Problem(f"ONNX Runtime runs on the CPU although a GPU was found; {cure}"))
    if facts["gpus"] and facts.get("torch_device") == "cpu":
        cure = "update the driver, or install torch for its CUDA version"
        problems.append(Problem(f"torch runs on the CPU although a GPU was found; {cure}"))
    return Examination({}, tuple(problems))


def _codecs() -> Examination:
    try:
        from PIL import features
    except ImportError as error:
        message = f"Pillow does not work: {error}; pip install --force-reinstall pillow"
        return Examination({"codecs": []}, (Problem(message),))
    there = [name for codec, name in _CODECS.items() if features.check(codec)]
    missing = [name for name in _CODECS.values() if name not in there]
    cure = "pip install --upgrade --force-reinstall pillow"
    problems = [
        Problem(f"Pillow cannot read {name} images; {cure}", UNREADABLE) for name in missing
    ]
    return Examination({"codecs": there}, tuple(problems))


def _bundle(path: Path) -> Examination:
    facts = {"bundle": str(path)}
    try:
        from scda.models.bundle import bundle_folder
        from scda.models.predictor import load_predictor

        manifest = load_predictor(bundle_folder(path)).manifest
    except ScdaError as error:
        return Examination(facts, (Problem(str(error), error.exit_code),))
    except ImportError as error:
        message = f"the bundle cannot be checked: {error}; pip install --force-reinstall scda"
        return Examination(facts, (Problem(message),))
    return Examination(facts | {"model_id": manifest.id, "status": list(manifest.status)})


def _speed(path: Path, *, gpu: bool) -> Examination:
    from scda.adapt.runtime.speed import speeds
    from scda.models.bundle import bundle_folder
    from scda.models.session import OPENVINO

    providers = ("cpu", "cuda", OPENVINO) if gpu else ("cpu", OPENVINO)
    return Examination(speeds(bundle_folder(path), providers))
