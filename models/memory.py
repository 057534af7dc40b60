"""The memory that this process may use."""

import os
from contextlib import suppress

from scda.models.cpus import control_groups

_UNKNOWN = 2**32  # bytes; where the system does not say


def usable_memory() -> int:
    """Return the memory of the machine in bytes, capped by the container's limit."""
    total = _UNKNOWN
    with suppress(AttributeError, OSError, ValueError):  # not on every system
        total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return min([total, *_limits()])


def _limits() -> list[int]:
    """Return the memory limits of the control groups that hold for this process, in bytes."""
    found = []
    for group in control_groups("memory"):
        for name in ("memory.max", "memory.limit_in_bytes"):
            with suppress(OSError, ValueError):  # `max` means no limit
                found.append(int((group / name).read_text("ascii")))
    return [limit for limit in found if limit > 0]
