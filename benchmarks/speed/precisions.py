"""The other precision and the other runtime of a bundle, and what this machine has for them."""

import importlib.util
from pathlib import Path

from scda.models.bundle import Manifest, bundle_folder, read_manifest
from scda.models.errors import UsageError

_CPU_FACTS = Path("/proc/cpuinfo")
_INSTRUCTIONS = ("amx", "vnni")


def int8_version(path: Path, exact: Manifest) -> Path:
    """Return the folder of a bundle in int8.

    Args:
        path: The bundle, or its run.
        exact: The bundle in float32 that it was made from.

    Raises:
        UsageError: If it is not in int8, or was made from another bundle.
    """
    folder = bundle_folder(path)
    found = read_manifest(folder).quantisation
    if found is None or found.model_id != exact.id:
        made_from = f"int8 of {found.model_id}" if found else "float32"
        raise UsageError(f"{path}: its model is {made_from}; expected int8 of {exact.id}")
    return folder


def why_no_openvino() -> str | None:
    """Return why OpenVINO cannot run here; None if it can."""
    is_there = importlib.util.find_spec("openvino")
    return None if is_there else "OpenVINO is not installed; pip install 'scda[openvino]'"


def why_no_faster_openvino() -> str | None:
    """Return why OpenVINO has no bound here; None if it has one."""
    if missing := why_no_openvino():
        return missing
    is_there = any(name in flag for flag in _cpu_flags() for name in _INSTRUCTIONS)
    return None if is_there else "the CPU has neither AMX nor VNNI"


def _cpu_flags() -> list[str]:
    """Return the names of the CPU's instructions, such as `avx512_vnni` (Linux)."""
    try:
        lines = _CPU_FACTS.read_text("ascii", errors="replace").splitlines()
    except OSError:
        return []
    flags = (line.partition(":")[2] for line in lines if line.startswith("flags"))
    return next(flags, "").split()
