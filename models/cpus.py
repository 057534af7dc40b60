"""Number of CPUs that this process may use."""

import os
from pathlib import Path

_CGROUP_LIMIT = Path("/sys/fs/cgroup/cpu.max")


def usable_cpus() -> int:
    """Return the number of CPUs in the affinity mask, capped by the container's quota; at least 1.

    Thread pools sized to the host instead of the container lose most of their speed.
    """
    affinity = getattr(os, "sched_getaffinity", None)  # absent on macOS and Windows
    allowed = len(affinity(0)) if affinity else os.cpu_count() or 1
    return max(1, min(allowed, _quota() or allowed))


def _quota() -> int | None:
    try:
        quota, period = _CGROUP_LIMIT.read_text().split()
        return None if quota == "max" else max(1, round(int(quota) / int(period)))
    except (OSError, ValueError):
        return None
